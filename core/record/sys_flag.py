"""Bits of a message's sysFlag (docs/internals/protocol.md, Flag words)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Flags = NDArray[Any]
    """A numpy array with the sysFlags of many records."""


class Flagged(Protocol):
    """An object with a sysFlag: a record, or several records that were appended together."""

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
    """Return the transaction bits of a sysFlag: one of the four TRANSACTION values."""
    return sys_flag & TRANSACTION_MASK


def without_transaction(sys_flag: int) -> int:
    """Return a sysFlag with its transaction bits cleared, like the sysFlag of a message without a transaction."""
    return sys_flag & ~TRANSACTION_MASK


@overload
def is_queued(sys_flag: int) -> bool: ...
@overload
def is_queued(sys_flag: Flags) -> Flags: ...
def is_queued(sys_flag: int | Flags) -> bool | Flags:
    """Return whether a record with this sysFlag has a unit in its consume queue. Prepared and rolled back records have no unit.

    The two transaction bits of prepared and rolled back records are 01 and 11, so the lower bit alone distinguishes them from
    other records.
    """
    return (sys_flag & TRANSACTION_PREPARED) == 0


@overload
def is_indexed(sys_flag: int) -> bool: ...
@overload
def is_indexed(sys_flag: Flags) -> Flags: ...
def is_indexed(sys_flag: int | Flags) -> bool | Flags:
    """Return whether the keys of a record with this sysFlag have entries in the index. The keys of rolled back records have no
    entries.
    """
    return (sys_flag & TRANSACTION_MASK) != TRANSACTION_ROLLBACK


def queued(records: Iterable[R]) -> list[R]:
    """Return the records that have units in their queues, like :func:`is_queued` but without a call for each record."""
    return [record for record in records if not record.sys_flag & TRANSACTION_PREPARED]


def indexed(records: Iterable[R]) -> list[R]:
    """Return the records whose keys are in the index, like :func:`is_indexed` but without a call for each record."""
    return [record for record in records if record.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK]
