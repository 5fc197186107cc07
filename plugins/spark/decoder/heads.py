"""Types of the decoder's arrays, and where the hosts of records lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from flintmq.core.record.layout import HEAD_AT, V6_MORE_BYTES

if TYPE_CHECKING:
    from flintmq.core.record.heads import Heads

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_BORN_HOST_AT: Final = HEAD_AT["born_host"]
_STORE_HOST_AT: Final = HEAD_AT["store_host"]


def born_host_at(heads: Heads) -> Ints:
    """Return where the producers' addresses lie."""
    return heads.start + _BORN_HOST_AT


def store_host_at(heads: Heads) -> Ints:
    """Return where the broker's addresses lie."""
    at = heads.start + _STORE_HOST_AT
    return at if heads.born_v6 is None else at + np.where(heads.born_v6, V6_MORE_BYTES, 0)
