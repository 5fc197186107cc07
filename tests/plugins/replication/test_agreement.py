"""Which log counts: a slave follows where that loses nothing, and otherwise says what parted the two logs and what to do."""

from __future__ import annotations
