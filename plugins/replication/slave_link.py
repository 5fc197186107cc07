"""Implements the slave's side of a replication connection, without a socket.

This module processes bytes from the master, such as parts of the log. It returns the records to append, and bytes for the
master, such as reports of the physical offset up to which the slave's log is on disk. A connection has these stages:

::

    start ─► (RocketMQ's stream) FOLLOWING
    start ─hello─► CHALLENGED ─state─► AGREEING ─► FOLLOWING

A frame may end within a record. Bytes are buffered until a record is complete. The record is then checked as in a recovery:
magic, consistent lengths, checksum of the body, physical offset, and a topic that may become a folder. Valid records are
appended byte for byte.
"""

from __future__ import annotations

import enum
import hmac
from collections.abc import Callable

from flintmq.core.errors import NotFollowedError, ReplicationError
from flintmq.core.io.chance import secret_bytes
from flintmq.core.limits import HA_RECORD_MAX_BYTES
from flintmq.core.log.log_chunk import LogChunk
from flintmq.core.record.check import RecordCheck
from flintmq.core.record.record import BLANK_MIN_BYTES, MAGIC_BLANK, RECORD_MIN_BYTES, SIZE_AND_MAGIC, RecordError
from flintmq.plugins.replication import streams
from flintmq.plugins.replication.agreement import LogState, agree
from flintmq.plugins.replication.link_settings import LinkSettings
from flintmq.plugins.replication.store_log import SlaveStoreLog
from flintmq.plugins.replication.streams import Buffer, Frame, FrameType, Keys, Sealer, Unsealer, plain_pieces


class SlaveStage(enum.Enum):
    """The stages of the connection to a master, as the diagram of the module shows them."""

    CHALLENGED = "challenged"
    AGREEING = "agreeing"
    FOLLOWING = "following"


class SlaveLink:
    """The protocol of a connection to a master, without its socket. Used only on the event loop's thread.

    Args:
        log: the slave's log, which must be on disk up to its end. Its attribute ``master_confirmed_offset_bytes`` is set to the
            value that the master sends.
        settings: settings of the connection.
        now_s: the current monotonic time, in seconds.
    """

    def __init__(self, log: SlaveStoreLog, settings: LinkSettings, now_s: float) -> None:
        self._log = log
        self._settings = settings
        self._read_s = self._wrote_s = now_s
        self.master: LogState | None = None
        """State of the master's log; None for a RocketMQ master, which sends no state."""
        self._held_offset_bytes = self._confirmed_offset_bytes = 0
        self._challenge = b""
        self._nonce = secret_bytes(streams.NONCE_BYTES)
        self._decode: Callable[[bytes], list[Frame]] = streams.Frames().receive
        self._encode: Callable[[FrameType, int, int, Buffer], list[Buffer]] = plain_pieces
        self._checker: RecordChecker | None = None
        self._out: list[Buffer] = []
        if settings.secret is None:
            self._follow(log.end_offset_bytes)
        else:
            self.stage = SlaveStage.CHALLENGED
            self._out.append(streams.HELLO.pack(streams.MAGIC, streams.VERSION, self._nonce))

    def _follow(self, from_offset_bytes: int) -> None:
        if from_offset_bytes:
            self._checker = RecordChecker(from_offset_bytes, self._log.file_bytes)
        self.stage = SlaveStage.FOLLOWING
        self.report(self._log.end_offset_bytes)

    def receive(self, data: bytes, now_s: float) -> list[LogChunk]:
        """Process bytes that the master has sent; return the parts of the log to append now, in order.

        Raises:
            ReplicationError: the master breaks the protocol, sends a damaged record, or its log does not continue the slave's
                log. The caller sends the master :meth:`farewell`.
            StoreError: the slave's log could not be truncated, or the master's epochs could not be stored.
        """
        self._read_s = now_s
        if self.stage is SlaveStage.CHALLENGED:
            data = self._answer(data)
            if not data:
                return []
        chunks: list[LogChunk] = []
        for frame in self._decode(data):
            chunks += self._framed(frame)
        return chunks

    def _answer(self, data: bytes) -> bytes:
        """Process the master's challenge and prepare the state of the slave's log as the answer; return the bytes after the
        challenge."""
        secret = self._settings.secret
        assert secret is not None
        challenge_bytes = streams.CHALLENGE.size
        self._challenge += data
        if len(self._challenge) < challenge_bytes:
            return b""
        challenge, rest = self._challenge[:challenge_bytes], self._challenge[challenge_bytes:]
        nonce, proof = streams.read_greeting(streams.CHALLENGE, challenge)
        keys = Keys.derive(secret, self._nonce, nonce)
        if not hmac.compare_digest(keys.proof, proof):
            raise ReplicationError("the master does not know the secret (ha.secret, ha.secret_file)")
        self._encode, self._decode = Sealer(keys.slave).seal, Unsealer(keys.master).receive
        self._out += self._encode(FrameType.STATE, 0, 0, self._log.state().to_bytes())
        self.stage = SlaveStage.AGREEING
        return rest

    def _framed(self, frame: Frame) -> list[LogChunk]:
        if frame.type is FrameType.GOODBYE:
            raise NotFollowedError(f"the master ended replication: {frame.body[:2000].decode('utf-8', 'replace')}")
        if self.stage is SlaveStage.AGREEING and frame.type is FrameType.STATE:
            self.master = LogState.from_bytes(frame.body)
            agreement = agree(self.master, self._log.state(), self._settings.truncate)
            self._log.follow(agreement, self.master.epochs)
            self._follow(agreement.from_offset_bytes)
            return []
        if self.stage is not SlaveStage.FOLLOWING or frame.type not in (FrameType.DATA, FrameType.HEARTBEAT):
            raise ReplicationError(f"the master sent an unexpected frame {frame.type.name} in stage {self.stage.value}")
        if frame.second_offset_bytes is not None:
            self._confirmed_offset_bytes = max(self._confirmed_offset_bytes, frame.second_offset_bytes)
            self._log.master_confirmed_offset_bytes = self._confirmed_offset_bytes
        return self._piece(frame.offset_bytes, frame.body)

    def _piece(self, offset_bytes: int, body: bytes) -> list[LogChunk]:
        checker = self._checker
        if checker is None:
            # As with a RocketMQ master, a copy to an empty log must begin at the first byte of a log file.
            if offset_bytes % self._log.file_bytes:
                raise ReplicationError(
                    f"the master begins at position {offset_bytes}, which is not the begin of a file of "
                    f"{self._log.file_bytes} bytes: set store.commit_log_file_bytes to the master's value"
                )
            if not body:
                return []
            checker = self._checker = RecordChecker(offset_bytes, self._log.file_bytes)
        if not body and offset_bytes != checker.received_offset_bytes:
            raise ReplicationError(
                f"the master is at position {offset_bytes}, but this log continues at {checker.received_offset_bytes}"
            )
        return checker.receive(offset_bytes, body) if body else []

    def report(self, held_offset_bytes: int) -> None:
        """Add a report to the next bytes for the master: the physical offset up to which the slave's log is on disk."""
        self._held_offset_bytes = held_offset_bytes
        self._out += self._encode(FrameType.HELD, held_offset_bytes, 0, b"")

    def output(self, now_s: float) -> list[Buffer]:
        """Return the bytes to send to the master now, and remove them from the output.

        If the slave has sent nothing for the interval of heartbeats, the output is another report of the physical offset up to
        which the slave's log is on disk. The offset is the same as in the previous report.
        """
        if not self._out and self.stage is SlaveStage.FOLLOWING and now_s - self._wrote_s >= self._settings.heartbeat_s:
            self.report(self._held_offset_bytes)
        out, self._out = self._out, []
        if out:
            self._wrote_s = now_s
        return out

    def farewell(self, reason: str) -> list[Buffer]:
        """Return the bytes that the slave sends last: the bytes that were not sent yet, and a frame with the reason for which
        the slave ends the connection.

        The result is empty if no secret is configured, because the connection then uses RocketMQ's protocol, which has no frame
        for a reason. The result is also empty if the master has not yet proved that it knows the secret, because the keys that
        protect the frames are known only after that.
        """
        if self._settings.secret is None or self.stage is SlaveStage.CHALLENGED:
            return []
        return [*self._out, *self._encode(FrameType.GOODBYE, 0, 0, reason.encode("utf-8"))]

    def is_dead(self, now_s: float) -> bool:
        """Return whether the master has been silent longer than the limit, so that the connection must be closed."""
        return now_s - self._read_s >= self._settings.housekeeping_s


class RecordChecker:
    """Checks the bytes of a master's log and returns the parts to append: complete valid records and blank ends of files.

    Args:
        end_offset_bytes: physical offset of the end of the slave's log.
        file_bytes: size of each file of the log.
    """

    def __init__(self, end_offset_bytes: int, file_bytes: int) -> None:
        self._at = end_offset_bytes
        self._file_bytes = file_bytes
        self._pending = bytearray()
        """Received bytes of a record whose remaining bytes have not arrived."""
        self._blank_until = 0
        self._records = RecordCheck()

    @property
    def received_offset_bytes(self) -> int:
        """Physical offset of the next expected byte of the master's log."""
        return self._at + len(self._pending)

    def receive(self, offset_bytes: int, data: bytes) -> list[LogChunk]:
        """Add the next bytes of the master's log; return the chunks that are complete and valid now.

        Args:
            offset_bytes: physical offset of the bytes, from the frame.
            data: the bytes.

        Returns:
            At most one chunk for each file; empty if no record is complete.

        Raises:
            ReplicationError: the offset is not the expected one, or a record is not valid. If this error is raised, no part of
                ``data`` is returned.
        """
        if offset_bytes != self.received_offset_bytes:
            raise ReplicationError(
                f"the master sent position {offset_bytes}, but this log continues at {self.received_offset_bytes}"
            )
        pending = self._pending
        come: bytes | bytearray = data
        if pending:
            pending += data
            come = pending
        chunks: list[LogChunk] = []
        done = 0
        with memoryview(come) as view:
            while done < len(view):
                taken, stored_ms, messages, size_bytes = self._take(view[done:], self._at + done)
                if not taken:
                    break
                checked = bytes(view[done : done + taken])
                chunks.append(LogChunk(self._at + done, checked, stored_ms, messages, size_bytes))
                done += taken
        if come is pending:
            del pending[:done]
        else:
            pending += data[done:]
        self._at += done
        return chunks

    def _take(self, view: memoryview, start: int) -> tuple[int, int, int, int]:
        """Check the bytes in ``view``, whose first byte has the physical offset ``start``. Bytes past the end of the log file
        that contains ``start`` are ignored.

        Returns:
            The number of bytes that are complete and valid from the beginning on, the store timestamp of the last record, the
            number of records, and the sum of their sizes.
        """
        room = self._file_bytes - start % self._file_bytes
        view = view[:room]
        at = stored_ms = messages = size_bytes = 0
        while at < len(view):
            if start + at < self._blank_until:
                at = len(view)  # The remaining bytes belong to the blank record at the end of the log file.
                break
            if len(view) - at < BLANK_MIN_BYTES:
                if room - at < BLANK_MIN_BYTES:
                    # The last bytes of a log file are too few for a record, so the last bytes are taken without a check.
                    at = len(view)
                break
            size, magic = SIZE_AND_MAGIC.unpack_from(view, at)
            if magic == MAGIC_BLANK:
                self._blank_until = start + room
                continue
            if not RECORD_MIN_BYTES <= size <= min(room - at, HA_RECORD_MAX_BYTES):
                raise ReplicationError(
                    f"no record at position {start + at}: size {size}, magic 0x{magic:08X}, and the file ends after "
                    f"{room - at} bytes: check that store.commit_log_file_bytes is the same as on the master"
                )
            if len(view) - at < size:
                break
            stored_ms = self._check(view, at, start + at)
            at += size
            messages += 1
            size_bytes += size
        return at, stored_ms, messages, size_bytes

    def _check(self, view: memoryview, at: int, physical_offset_bytes: int) -> int:
        """Return the store timestamp of a complete record in a view. Raises ReplicationError if the record is damaged."""
        plain = self._records.plain(view, at, len(view), physical_offset_bytes)
        if plain is not None:
            return plain[2]
        try:
            return self._records.record(view, at, physical_offset_bytes).store_timestamp_ms
        except RecordError as error:
            raise ReplicationError(
                f"the master's record at position {physical_offset_bytes} is damaged: {error} "
                "(stop the master and run flintmq store repair to remove the record)"
            ) from error
