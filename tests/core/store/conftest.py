"""No deadline for examples: the machine that runs the tests may be shared. And numpy is there from the first entry on."""

from __future__ import annotations

import hypothesis

from flintmq.core.io import lazy_numpy

lazy_numpy.load()

hypothesis.settings.register_profile("shared-machine", deadline=None)
hypothesis.settings.load_profile("shared-machine")
