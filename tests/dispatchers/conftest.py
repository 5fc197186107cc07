"""Have numpy imported from the first entry on: what reads many records at a time is under test, not when it begins to."""

from __future__ import annotations

from flintmq.core.io import lazy_numpy

lazy_numpy.load()
