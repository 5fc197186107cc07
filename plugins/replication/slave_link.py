"""Implements the slave's end of the connection to its master without a socket: pieces of the log in, reports out.

::

    start ─► (RocketMQ's stream) FOLLOWING
    start ─hello─► CHALLENGED ─state─► AGREEING ─► FOLLOWING

What comes is checked record by record before it is given to the log (:mod:`flintmq.plugins.replication.record_check`).
"""

from __future__ import annotations

import enum
import hmac
import secrets

from flintmq.core.errors import NotFollowedError, ReplicationError
from flintmq.core.log.log_chunk import LogChunk
from flintmq.plugins.replication import plain_stream, sealed_stream
from flintmq.plugins.replication.agreement import LogState, agree
from flintmq.plugins.replication.link import Buffer, LinkSettings, SlaveLog
from flintmq.plugins.replication.record_check import RecordChecker
from flintmq.plugins.replication.sealed_stream import FrameType, Keys, Sealer, Unsealer


class SlaveStage(enum.Enum):
    """The stages of a connection."""

    CHALLENGED = "challenged"
    AGREEING = "agreeing"
    FOLLOWING = "following"


class SlaveLink:
    """One connection to a master. Loop thread.

    Args:
        log: what follows; everything in it must be held already.
        settings: see :class:`LinkSettings`.
        now_s: the time, on a monotonic clock.
    """

    def __init__(self, log: SlaveLog, settings: LinkSettings, now_s: float) -> None:
        self._log = log
        self._settings = settings
        self._read_s = self._wrote_s = now_s
        self.confirmed_offset_bytes: int | None = None
        """The last end that the master sent of what it has promised or shown of its log; None before the first."""
        self.master: LogState | None = None
        """What the master says of itself; None of RocketMQ's."""
        self._held_offset_bytes = 0
        self._frames = plain_stream.Frames()
        self._challenge = b""
        self._nonce = secrets.token_bytes(sealed_stream.NONCE_BYTES)
        self._sealer: Sealer | None = None
        self._unsealer: Unsealer | None = None
        self._checker: RecordChecker | None = None
        self._out: list[Buffer] = []
        if settings.secret is None:
            self.stage = SlaveStage.FOLLOWING
            self._follow(log.end_offset_bytes)
        else:
            self.stage = SlaveStage.CHALLENGED
            self._out.append(sealed_stream.HELLO.pack(sealed_stream.MAGIC, sealed_stream.VERSION, self._nonce))

    def _follow(self, from_offset_bytes: int) -> None:
        if from_offset_bytes:
            self._checker = RecordChecker(from_offset_bytes, self._log.file_bytes)
        self.stage = SlaveStage.FOLLOWING
        self.report(self._log.end_offset_bytes)

    def receive(self, data: bytes, now_s: float) -> list[LogChunk]:
        """Take bytes of the master; return what is to be appended now, in order.

        Raises:
            ReplicationError: the master breaks the rules, sends a damaged record, or must not be followed;
                :meth:`farewell` says so.
            StoreError: the log could not be made ready to follow.
        """
        self._read_s = now_s
        if self._settings.secret is None:
            chunks: list[LogChunk] = []
            for frame in self._frames.receive(data):
                chunks += self._piece(frame.offset_bytes, frame.body)
            return chunks
        if self.stage is SlaveStage.CHALLENGED:
            data = self._answer(data)
        chunks = []
        if data and self._unsealer is not None:
            for sealed in self._unsealer.receive(data):
                chunks += self._framed(sealed)
        return chunks

    def _answer(self, data: bytes) -> bytes:
        """Take the challenge and answer with this end's state; return the bytes that follow."""
        secret = self._settings.secret
        assert secret is not None
        challenge_bytes = sealed_stream.CHALLENGE.size
        self._challenge += data
        if len(self._challenge) < challenge_bytes:
            return b""
        challenge, rest = self._challenge[:challenge_bytes], self._challenge[challenge_bytes:]
        nonce, proof = sealed_stream.read_challenge(challenge)
        keys = Keys.derive(secret, self._nonce, nonce)
        if not hmac.compare_digest(keys.proof, proof):
            raise ReplicationError("the master does not know the secret (ha.secret, ha.secret_file)")
        self._sealer, self._unsealer = Sealer(keys.slave), Unsealer(keys.master)
        self._out += self._sealer.seal(FrameType.STATE, 0, 0, self._log.state().to_bytes())
        self.stage = SlaveStage.AGREEING
        return rest

    def _framed(self, frame: sealed_stream.SealedFrame) -> list[LogChunk]:
        if frame.type is FrameType.GOODBYE:
            raise NotFollowedError(f"the master says: {frame.body[:2000].decode('utf-8', 'replace')}")
        if self.stage is SlaveStage.AGREEING and frame.type is FrameType.STATE:
            self.master = LogState.from_bytes(frame.body)
            agreement = agree(self.master, self._log.state(), self._settings.truncate)
            self._log.follow(agreement, self.master.epochs)
            self._follow(agreement.from_offset_bytes)
            return []
        if self.stage is not SlaveStage.FOLLOWING or frame.type not in (FrameType.DATA, FrameType.HEARTBEAT):
            raise ReplicationError(f"the master sent a frame {frame.type.name} in stage {self.stage.value}")
        self.confirmed_offset_bytes = max(self.confirmed_offset_bytes or 0, frame.second_offset_bytes)
        return self._piece(frame.offset_bytes, frame.body)

    def _piece(self, offset_bytes: int, body: bytes) -> list[LogChunk]:
        checker = self._checker
        if checker is None:
            # An empty log begins where the master's does, or, of RocketMQ's, where its last file does.
            if offset_bytes % self._log.file_bytes:
                raise ReplicationError(
                    f"the master begins at {offset_bytes}, where no file of {self._log.file_bytes} bytes begins "
                    "(is store.commit_log_file_bytes that of the master?)"
                )
            if not body:
                return []
            checker = self._checker = RecordChecker(offset_bytes, self._log.file_bytes)
        if not body and offset_bytes != checker.received_offset_bytes:
            raise ReplicationError(
                f"the master is at position {offset_bytes}, this log goes on at {checker.received_offset_bytes}"
            )
        return checker.receive(offset_bytes, body) if body else []

    def report(self, held_offset_bytes: int) -> None:
        """Report with the next output how far the log is held."""
        self._held_offset_bytes = held_offset_bytes
        if self._sealer is not None:
            self._out += self._sealer.seal(FrameType.HELD, held_offset_bytes)
        else:
            self._out.append(plain_stream.encode_report(held_offset_bytes))

    def output(self, now_s: float) -> list[Buffer]:
        """Return what is to be written now: what waits, or a report where none was sent for long."""
        if not self._out and self.stage is SlaveStage.FOLLOWING and now_s - self._wrote_s >= self._settings.heartbeat_s:
            self.report(self._held_offset_bytes)
        out, self._out = self._out, []
        if out:
            self._wrote_s = now_s
        return out

    def farewell(self, reason: str) -> list[Buffer]:
        """Return a frame that says why the connection ends; nothing in RocketMQ's stream."""
        if self._sealer is None:
            return []
        return [*self._out, *self._sealer.seal(FrameType.GOODBYE, 0, 0, reason.encode("utf-8"))]

    def is_dead(self, now_s: float) -> bool:
        """Return whether the master was silent for too long."""
        return now_s - self._read_s >= self._settings.housekeeping_s
