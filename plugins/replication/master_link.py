"""Implements the master's side of a replication connection, without a socket.

This module processes the bytes that a slave sends, and returns the bytes to send to the slave. A connection has these stages:

GREETING
    The master waits for the first bytes from the slave.
PROVING
    This stage exists only if a secret is configured. The slave has sent a greeting, and the master has answered with a proof
    that it knows the secret. The slave sends a frame with the state of its log. The frame is authenticated with the secret,
    so it proves that the slave knows the secret too. The master answers with the state of its own log.
TRANSFER
    The slave has reported the physical offset up to which it has the log. The master sends the log after this offset, and the
    slave reports its progress.

Without a secret, RocketMQ's stream is used: the slave sends no greeting, and its first report of a physical offset begins stage
TRANSFER. A RocketMQ slave with an empty log asks for physical offset 0, and gets only the last file
(docs/internals/store-format.md, Replication stream). A FlintMQ slave gets the whole log.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from flintmq.core.errors import NotFollowedError, ReplicationError
from flintmq.core.io.chance import secret_bytes
from flintmq.core.limits import HA_HANDSHAKE_TIMEOUT_S, HA_SLAVE_FRAME_MAX_BYTES
from flintmq.plugins.replication import streams
from flintmq.plugins.replication.agreement import LogState, agree
from flintmq.plugins.replication.link_settings import LinkSettings
from flintmq.plugins.replication.store_log import StoreLog
from flintmq.plugins.replication.streams import Buffer, Frame, FrameType, Keys, Sealer, Unsealer, plain_pieces


class Stage(enum.Enum):
    """The stages of a slave's connection, as the module's docstring describes them."""

    GREETING = "greeting"
    PROVING = "proving"
    TRANSFER = "transfer"


class MasterLink:
    """The protocol of one slave's connection, without its socket. Used only on the event loop's thread.

    Args:
        log: the log to send.
        settings: settings of the connection.
        now_s: the current monotonic time, in seconds.
    """

    def __init__(self, log: StoreLog, settings: LinkSettings, now_s: float) -> None:
        self._log = log
        self._settings = settings
        self._began_s = self._read_s = self._wrote_s = now_s
        self.stage = Stage.GREETING
        self.next_offset_bytes = 0
        """Physical offset of the next byte to send to the slave; valid in stage TRANSFER."""
        self.held_offset_bytes = 0
        """Physical offset up to which the slave has received the log, according to the slave's last report."""
        self.slave: LogState | None = None
        """State of the slave's log; None for a RocketMQ slave, which sends no state."""
        self._greeting = b""
        self._answers: list[Buffer] = []
        self._decode: Callable[[bytes], list[Frame]] | None = None
        """Decoder of the frames from the slave. With FlintMQ's stream, the decoder is None until the slave's greeting has
        arrived, because the keys that authenticate frames are derived from the greeting."""
        self._encode: Callable[[FrameType, int, int, Buffer], list[Buffer]] = plain_pieces
        if settings.secret is None:
            self._decode = streams.Reports().receive

    def receive(self, data: bytes, now_s: float) -> None:
        """Process bytes that the slave has sent.

        Raises:
            ReplicationError: the slave breaks the protocol or may not replicate. The caller sends the slave :meth:`farewell`.
        """
        self._read_s = now_s
        if self._decode is None:
            data = self._greet(data)
        if self._decode is not None:
            for frame in self._decode(data):
                self._framed(frame)

    def _greet(self, data: bytes) -> bytes:
        """Process the slave's greeting and prepare the answer; return the received bytes after the greeting."""
        secret = self._settings.secret
        assert secret is not None
        hello_bytes = streams.HELLO.size
        self._greeting += data
        if len(self._greeting) < hello_bytes:
            return b""
        greeting, rest = self._greeting[:hello_bytes], self._greeting[hello_bytes:]
        self._greeting = b""
        (slave_nonce,) = streams.read_greeting(streams.HELLO, greeting)
        nonce = secret_bytes(streams.NONCE_BYTES)
        keys = Keys.derive(secret, slave_nonce, nonce)
        self._encode = Sealer(keys.master).seal
        self._decode = Unsealer(keys.slave, HA_SLAVE_FRAME_MAX_BYTES).receive
        self._answers.append(streams.CHALLENGE.pack(streams.MAGIC, streams.VERSION, nonce, keys.proof))
        self.stage = Stage.PROVING
        return rest

    def _framed(self, frame: Frame) -> None:
        if frame.type is FrameType.GOODBYE:
            raise ReplicationError(f"the slave ended replication: {frame.body[:500].decode('utf-8', 'replace')}")
        if self.stage is Stage.PROVING and frame.type is FrameType.STATE:
            self.slave = LogState.from_bytes(frame.body)
            mine = self._log.state()
            # The argument "always" makes the master agree to any truncation of the slave's log.
            # The slave itself checks a truncation of its log against its setting ha.truncate.
            agreement = agree(mine, self.slave, "always")
            self._answers += self._encode(FrameType.STATE, 0, 0, mine.to_bytes())
            self.next_offset_bytes = agreement.from_offset_bytes
            return
        if frame.type is not FrameType.HELD or (self.stage is Stage.PROVING and self.slave is None):
            raise ReplicationError(f"the slave sent an unexpected frame {frame.type.name} in stage {self.stage.value}")
        held, end = frame.offset_bytes, self._log.end_offset_bytes
        if self.stage is Stage.PROVING and held > self.next_offset_bytes:
            raise ReplicationError(
                f"the slave continues at position {held}, but the agreed position is {self.next_offset_bytes}"
            )
        if held > end:
            raise NotFollowedError(
                f"the slave's log ends at {held}, after the end of this master's log at {end}: the slave followed another "
                "master, or this master was restored from an older copy. Choose the log to keep, and start the other broker "
                "with an empty store"
            )
        if self.stage is Stage.GREETING:
            # A RocketMQ slave requests the log with its first report of an offset.
            last_file = end - end % self._log.file_bytes
            self.next_offset_bytes = held or max(self._log.min_offset_bytes, last_file)
        self.held_offset_bytes = held
        self.stage = Stage.TRANSFER

    def output(self, budget_bytes: int, now_s: float) -> list[Buffer]:
        """Return the bytes to send now: answers, parts of the log, or a heartbeat.

        Args:
            budget_bytes: approximate limit of bytes of the log.
            now_s: the current monotonic time, in seconds.

        Raises:
            ReplicationError: the part of the log that the slave needs next was deleted.
        """
        out, self._answers = self._answers, []
        if self.stage is Stage.TRANSFER:
            end = self._log.end_offset_bytes
            while budget_bytes > 0 and self.next_offset_bytes < end:
                piece = self._log.read(self.next_offset_bytes, self._settings.batch_bytes)
                if piece is None:
                    raise NotFollowedError(
                        f"the slave is at {self.next_offset_bytes}, and this master has deleted everything before "
                        f"{self._log.min_offset_bytes}: start the slave with an empty store"
                    )
                out += self._data(self.next_offset_bytes, piece)
                self.next_offset_bytes += len(piece)
                budget_bytes -= len(piece)
            if not out and now_s - self._wrote_s >= self._settings.heartbeat_s:
                out += self._data(self.next_offset_bytes, b"")
        if out:
            self._wrote_s = now_s
        return out

    def _data(self, offset_bytes: int, piece: Buffer) -> list[Buffer]:
        kind = FrameType.DATA if piece else FrameType.HEARTBEAT
        return self._encode(kind, offset_bytes, self._log.confirmed_offset_bytes, piece)

    def farewell(self, reason: str) -> list[Buffer]:
        """Return a frame with the reason for which the connection ends; empty in RocketMQ's stream or before the greeting."""
        if self._settings.secret is None or self.stage is Stage.GREETING:
            return []
        return [*self._answers, *self._encode(FrameType.GOODBYE, 0, 0, reason.encode("utf-8"))]

    def is_dead(self, now_s: float) -> bool:
        """Return whether the slave has been silent longer than the limit, so that the connection must be closed."""
        # The handshake timeout applies only if a secret is configured.
        # Without a secret, the slave may be RocketMQ's, whose first report may come later than the handshake timeout.
        greeted = self.stage is Stage.TRANSFER or self._settings.secret is None
        if not greeted and now_s - self._began_s >= HA_HANDSHAKE_TIMEOUT_S:
            return True
        return now_s - self._read_s >= self._settings.housekeeping_s
