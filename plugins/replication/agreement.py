"""Decides whether a slave may replicate from a master, and from which physical offset. Master and slave compute the same
result.

Two logs with the same store id are equal up to the end of the last epoch that both have (:mod:`flintmq.core.log.epochs`). If a
log ends *within* that epoch, the logs are equal up to the end of the shorter log. A slave whose log ends at or before this
position may replicate. A slave's longer log has a *tail* that the master does not have, for one of three reasons:

* The master's power failed before it had synced records that the slave had already received. The master's recovery began an
  epoch at the new end of the master's log. Frames that the master sent earlier prove that no client had got an acknowledgement
  or a message from the tail. The slave moves the tail to the quarantine and replicates.
* The master was restored from an older copy, or its disk lost synced data. Clients consider the messages in the tail stored.
* Both brokers were masters, one after the other or at the same time. Each log has messages that the other lacks.

In the last two cases an operator must choose one of the logs. The error describes both logs and how to choose.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal, Self

import attrs

from flintmq.core.errors import NotFollowedError, ReplicationError
from flintmq.core.log.epochs import RECOVERED, Epoch, Epochs

Truncate = Literal["proven", "always", "never"]
_STATE_MAX_BYTES: Final = 16 * 1024 * 1024
_OFFSET_MAX: Final = 2**63 - 1


@attrs.frozen
class LogState:
    """The state of a master's or a slave's log, which master and slave send each other in a STATE frame."""

    broker_name: str
    """Name of the broker. A master and its slaves have the same name."""
    epochs: Epochs
    min_offset_bytes: int
    """Physical offset at which the log begins."""
    end_offset_bytes: int
    """Physical offset of the log's end; 0 for a log without files."""
    file_bytes: int
    """Size of each file of the log, in bytes."""
    confirmed_offset_bytes: int
    """For a slave: physical offset up to which its master had acknowledged messages or shown messages to clients. If the
    master's offset is unknown, the value is the end of the slave's log."""
    address: str = ""
    """The broker's address for clients, as ``host:port``."""

    @property
    def is_empty(self) -> bool:
        """Return whether the log has never contained a message."""
        return self.end_offset_bytes == self.min_offset_bytes == 0

    def to_bytes(self) -> bytes:
        """Return the state of the log as JSON. Master and slave send each other this JSON as the body of a STATE frame, before
        replication begins."""
        content = attrs.asdict(self, filter=lambda attribute, _value: attribute.name != "epochs")
        content["epochs"] = self.epochs.to_bytes().decode("ascii")
        return json.dumps(content).encode("ascii")

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Return the state of a log from the body of a STATE frame. Raises ReplicationError if the body is not valid."""
        try:
            if len(raw) > _STATE_MAX_BYTES:
                raise ValueError(f"{len(raw)} bytes")
            content: dict[str, Any] = json.loads(raw)
            content["epochs"] = Epochs.from_bytes(content["epochs"].encode("ascii"))
            state = cls(**content)
            for name in ("min_offset_bytes", "end_offset_bytes", "file_bytes", "confirmed_offset_bytes"):
                value = getattr(state, name)
                if type(value) is not int or not 0 <= value <= _OFFSET_MAX:
                    raise ValueError(f"{name} is {value!r}")
            if not isinstance(state.broker_name, str) or not isinstance(state.address, str) or not state.file_bytes:
                raise ValueError("broker_name or file_bytes is missing")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ReplicationError(f"the other end's state cannot be read: {str(error)[:200]}") from error
        return state


@attrs.frozen
class Agreement:
    """The permission for a slave to replicate, with the physical offset at which replication begins."""

    from_offset_bytes: int
    """Physical offset from which the master sends its log."""
    truncate_to_bytes: int | None = None
    """Physical offset to which the slave must truncate its log before the master sends; None if the slave keeps its whole
    log."""


def agree(master: LogState, slave: LogState, truncate: Truncate = "proven") -> Agreement:
    """Return the permission for a slave to replicate from a master.

    Args:
        master: state of the master's log.
        slave: state of the slave's log.
        truncate: whether the slave may remove a tail that the master does not have: never, always, or if it is proved that no
            client has seen it (``ha.truncate``).

    Raises:
        NotFollowedError: the slave may not replicate. The error has the reason and the remedy.
    """
    if master.broker_name != slave.broker_name:
        raise NotFollowedError(
            f"the master's broker.name is '{master.broker_name}', the slave's is '{slave.broker_name}': check broker.name and "
            "ha.master_address"
        )
    if master.file_bytes != slave.file_bytes:
        raise NotFollowedError(
            f"the master's log has files of {master.file_bytes} bytes, the slave's log files of {slave.file_bytes} bytes: "
            "store.commit_log_file_bytes (mappedFileSizeCommitLog) must be the same"
        )
    if slave.is_empty:
        return Agreement(master.min_offset_bytes)
    shared = _last_shared(master, slave)
    common = min(
        master.epochs.end_offset_bytes(shared, master.end_offset_bytes),
        slave.epochs.cut_at(slave.end_offset_bytes).end_offset_bytes(shared, slave.end_offset_bytes),
    )
    if slave.end_offset_bytes > common:
        _check_tail(master, slave, shared, common, truncate)
    if common < master.min_offset_bytes:
        raise NotFollowedError(
            f"the slave's log ends at {common}, but the master has deleted its log before {master.min_offset_bytes}: move "
            "the slave's store away and start the slave with an empty store"
        )
    return Agreement(common, common if slave.end_offset_bytes > common else None)


def _last_shared(master: LogState, slave: LogState) -> Epoch:
    known = {epoch.id: epoch for epoch in master.epochs.entries}
    if master.epochs.store_id == slave.epochs.store_id:
        for epoch in reversed(slave.epochs.cut_at(slave.end_offset_bytes).entries):
            if known.get(epoch.id) == epoch:
                return epoch
    raise NotFollowedError(
        f"the master's log (store {master.epochs.store_id}) and the slave's (store {slave.epochs.store_id}) are different "
        "logs, or have no epoch in common: check ha.master_address. If the address is right, move the slave's store away "
        "and start the slave with an empty store"
    )


def _check_tail(master: LogState, slave: LogState, shared: Epoch, common: int, truncate: Truncate) -> None:
    """Raise NotFollowedError unless the slave may truncate its log to the physical offset ``common``."""
    tail = f"the slave's log has {slave.end_offset_bytes - common} bytes from position {common} on that the master's log lacks"
    choose = (
        "Choose the log to keep. To keep the slave's, start the slave as the master (broker.id: 0, broker.role) and the other "
        "broker as its slave. To keep the master's, start the slave once with ha.truncate: always; the removed bytes are "
        "kept in its flint/quarantine"
    )
    if truncate == "always":
        return
    own = [epoch for epoch in slave.epochs.entries if shared.number < epoch.number]
    own = [epoch for epoch in own if epoch.start_offset_bytes < slave.end_offset_bytes]
    following = [epoch for epoch in master.epochs.entries if epoch.number > shared.number]
    if own:
        raise NotFollowedError(
            f"{tail}: these bytes belong to epoch {own[0].number}, which the master does not know. The master was restored "
            f"from an older copy, or two brokers were masters. {choose}"
        )
    if not following or following[0].cause != RECOVERED or following[0].start_offset_bytes != common:
        raise NotFollowedError(
            f"{tail}: the master was restored from an older copy, or it is another broker than before (its epoch "
            f"{shared.number} ends at {common}). {choose}"
        )
    if slave.confirmed_offset_bytes > common:
        raise NotFollowedError(
            f"{tail}: the master lost these bytes in a crash. Clients may have read {slave.confirmed_offset_bytes - common} of "
            f"these bytes, or got acknowledgments for them. {choose}"
        )
    if truncate == "never":
        raise NotFollowedError(
            f"{tail}. No client got an answer for messages in these bytes, but 'ha.truncate: never' forbids to remove them. "
            f"{choose}"
        )
