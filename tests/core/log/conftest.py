"""No deadline for examples: the machine that runs the tests may be shared. And numpy is there from the first entry on."""

from __future__ import annotations

from flintmq.core.io import lazy_numpy

lazy_numpy.load()
