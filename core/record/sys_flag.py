"""Bits of a message's sysFlag (docs/internals/protocol.md, Flag words)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Flags = NDArray[Any]
    """sysFlags of many records."""


class Flagged(Protocol):
    """A record, or several that were appended together."""

    @property
    def sys_flag(self) -> int: ...


R = TypeVar("R", bound=Flagged)

COMPRESSED: Final = 0x1
TRANSACTION_NOT: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
TRANSACTION_MASK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
HOSTS_V6: Final = BORN_HOST_V6 | STORE_HOST_V6


def transaction_type(sys_flag: int) -> int:
    """Return one of the four TRANSACTION values."""
    return sys_flag & TRANSACTION_MASK


def without_transaction(sys_flag: int) -> int:
    """Return the flag of an ordinary message with the same other bits."""
    return sys_flag & ~TRANSACTION_MASK


@overload
def is_queued(sys_flag: int) -> bool: ...
@overload
def is_queued(sys_flag: Flags) -> Flags: ...
def is_queued(sys_flag: int | Flags) -> bool | Flags:
    """Return whether a record has a unit in its consume queue: prepared and rolled back ones stay invisible.

    Prepared is 01 and rollback 11 in the two transaction bits, so that the lower bit alone tells them from the others.
    """
    return (sys_flag & TRANSACTION_PREPARED) == 0


@overload
def is_indexed(sys_flag: int) -> bool: ...
@overload
def is_indexed(sys_flag: Flags) -> Flags: ...
def is_indexed(sys_flag: int | Flags) -> bool | Flags:
    """Return whether a record's keys have entries in the index: those of a rolled back one have none."""
    return (sys_flag & TRANSACTION_MASK) != TRANSACTION_ROLLBACK


def queued(records: Iterable[R]) -> list[R]:
    """Return those of some records that have units in their queues, see :func:`is_queued`; without a call for each."""
    return [record for record in records if not record.sys_flag & TRANSACTION_PREPARED]


def indexed(records: Iterable[R]) -> list[R]:
    """Return those of some records whose keys have entries in the index, see :func:`is_indexed`; without a call for each."""
    return [record for record in records if record.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK]
