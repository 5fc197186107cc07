"""No deadline for examples: the machine that runs the tests may be shared."""

from __future__ import annotations

import hypothesis

hypothesis.settings.register_profile("shared-machine", deadline=None)
hypothesis.settings.load_profile("shared-machine")
