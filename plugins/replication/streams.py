"""Encodes and decodes what the ends of replication say to each other: RocketMQ's stream, and the sealed one of FlintMQ.

RocketMQ's (docs/internals/store-format.md, Replication stream)::

    slave → master   end of the slave's log 8            the first is a request, every further one an acknowledgement
    master → slave   physical offset 8 | size 4 | bytes of the log; size 0 is a heartbeat

FlintMQ's, in which both ends prove that they know a secret, and every frame is sealed::

    slave → master   "FMHA" 4 | version 2 | nonce of the slave 32
    master → slave   "FMHA" 4 | version 2 | nonce of the master 32 | proof 32
    slave → master   STATE, or GOODBYE
    master → slave   STATE, or GOODBYE
    slave → master   HELD …                        master → slave   DATA | HEARTBEAT …

    frame            type 1 | zeros 3 | size 4 | physical offset 8 | second position 8 | body | seal 16

Both are big-endian; a frame never crosses the end of a file of the log, records may be cut anywhere.

Each direction has a key of its own, made of the secret and both nonces (HMAC-SHA256), so that nothing that was recorded can be
played to anybody again. The seal is keyed BLAKE2b over the frame's number in its direction, its header and its body: a bit that
flipped, a frame that is missing, repeated or out of order ends the connection. The proof is the master's, before the slave says
anything of itself; the slave's is the seal of its first frame. Nothing is encrypted: for that there is TLS.

``second position``: of DATA and HEARTBEAT the position up to which the master has promised or shown its log to anybody; of HELD
and STATE zero. The body of STATE is JSON (:class:`flintmq.plugins.replication.agreement.LogState`), the body of GOODBYE is a
reason in UTF-8.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import struct
from typing import Final

import attrs

from flintmq.core.errors import ReplicationError
from flintmq.core.limits import HA_FRAME_MAX_BYTES

MAGIC: Final = b"FMHA"
VERSION: Final = 1
NONCE_BYTES: Final = 32
HELLO: Final = struct.Struct(">4sH32s")
CHALLENGE: Final = struct.Struct(">4sH32s32s")
_SEALED_HEADER: Final = struct.Struct(">B3xIqq")
_NUMBER: Final = struct.Struct(">Q")
_SEAL_BYTES: Final = 16
_MASTER: Final = b"flintmq replication 1: master to slave"
_SLAVE: Final = b"flintmq replication 1: slave to master"
_PROOF: Final = b"flintmq replication 1: proof of the master"
_REPORT: Final = struct.Struct(">q")
_PLAIN_HEADER: Final = struct.Struct(">qi")

Buffer = bytes | memoryview


class FrameType(enum.IntEnum):
    """The types of frames; RocketMQ's stream has DATA, HEARTBEAT and HELD."""

    STATE = 1
    DATA = 2
    HEARTBEAT = 3
    HELD = 4
    GOODBYE = 5


_TYPES: Final = {int(one): one for one in FrameType}


@attrs.define
class Frame:
    """What came in one piece. Nobody changes it; it is not frozen because there is one for each message that is waited for."""

    type: FrameType
    offset_bytes: int
    """Of DATA the physical position of its first byte."""
    second_offset_bytes: int | None
    """None where the stream does not say it."""
    body: bytes = b""


def plain_pieces(kind: FrameType, offset_bytes: int, _second_offset_bytes: int = 0, body: Buffer = b"") -> list[Buffer]:
    """Return the pieces of a frame of RocketMQ's stream; none of a type that it does not have."""
    if kind is FrameType.HELD:
        return [_REPORT.pack(offset_bytes)]
    if kind not in (FrameType.DATA, FrameType.HEARTBEAT):
        return []
    header = _PLAIN_HEADER.pack(offset_bytes, len(body))
    return [header, body] if body else [header]


class Reports:
    """Reads the reports of a slave in RocketMQ's stream, of which only the newest whole one counts."""

    def __init__(self) -> None:
        self._rest = b""

    def receive(self, data: bytes) -> list[Frame]:
        """Take bytes; return the newest report among them. Raises ReplicationError for a negative position."""
        data = self._rest + data
        whole = len(data) - len(data) % _REPORT.size
        self._rest = data[whole:]
        if not whole:
            return []
        (newest,) = _REPORT.unpack_from(data, whole - _REPORT.size)
        if newest < 0:
            raise ReplicationError(f"the slave reports position {newest}")
        return [Frame(FrameType.HELD, newest, None)]


class Frames:
    """Reads the frames of a master in RocketMQ's stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def receive(self, data: bytes) -> list[Frame]:
        """Take bytes; return the frames that are whole now.

        Raises:
            ReplicationError: a negative or enormous size, a negative position.
        """
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        at = 0
        with memoryview(buffer) as view:
            while len(view) - at >= _PLAIN_HEADER.size:
                offset, size = _PLAIN_HEADER.unpack_from(view, at)
                if offset < 0 or not 0 <= size <= HA_FRAME_MAX_BYTES:
                    raise ReplicationError(f"the master sent a frame of {size} bytes at position {offset}")
                body_at = at + _PLAIN_HEADER.size
                if body_at + size > len(view):
                    break
                at = body_at + size
                kind = FrameType.DATA if size else FrameType.HEARTBEAT
                frames.append(Frame(kind, offset, None, bytes(view[body_at:at])))
        del buffer[:at]
        return frames


@attrs.frozen
class Keys:
    """The keys of one connection, one for each direction."""

    master: bytes = attrs.field(repr=False)
    """Seals what the master sends."""
    slave: bytes = attrs.field(repr=False)
    """Seals what the slave sends."""

    @classmethod
    def derive(cls, secret: bytes, slave_nonce: bytes, master_nonce: bytes) -> Keys:
        """Derive the keys from the secret and both nonces."""
        nonces = slave_nonce + master_nonce
        return cls(
            hmac.digest(secret, _MASTER + nonces, "sha256"),
            hmac.digest(secret, _SLAVE + nonces, "sha256"),
        )

    @property
    def proof(self) -> bytes:
        """Return the proof that only a master that knows the secret can send."""
        return hmac.digest(self.master, _PROOF, "sha256")


class Sealer:
    """Seals the frames of one direction, in order."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=_SEAL_BYTES)
        self._number = 0

    def seal(
        self, kind: FrameType, offset_bytes: int, second_offset_bytes: int = 0, body: Buffer = b""
    ) -> list[Buffer]:
        """Return the pieces of a frame, to be written in this order."""
        header = _SEALED_HEADER.pack(kind, len(body), offset_bytes, second_offset_bytes)
        digest = self._keyed.copy()
        digest.update(_NUMBER.pack(self._number) + header)
        digest.update(body)
        self._number += 1
        return [header, body, digest.digest()]


class Unsealer:
    """Reads the frames of one direction, in order.

    Args:
        key: the direction's.
        max_bytes: the longest body; so much may be kept before a seal can be checked.
    """

    def __init__(self, key: bytes, max_bytes: int = HA_FRAME_MAX_BYTES) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=_SEAL_BYTES)
        self._max_bytes = max_bytes
        self._number = 0
        self._buffer = bytearray()

    def receive(self, data: bytes) -> list[Frame]:
        """Take bytes; return the frames that are whole now.

        Raises:
            ReplicationError: a wrong seal, an unknown type, an enormous size, a negative position.
        """
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        at = 0
        with memoryview(buffer) as view:
            while len(view) - at >= _SEALED_HEADER.size:
                kind, size, offset, second = _SEALED_HEADER.unpack_from(view, at)
                if size > self._max_bytes:
                    raise ReplicationError(f"the other end announced a frame of {size} bytes")
                body_at = at + _SEALED_HEADER.size
                body_end = body_at + size
                end = body_end + _SEAL_BYTES
                if end > len(view):
                    break
                self._check(view[at:body_end], view[body_end:end])
                if kind not in _TYPES or offset < 0 or second < 0:
                    raise ReplicationError(f"the other end sent a frame of type {kind} at position {offset}")
                frames.append(Frame(_TYPES[kind], offset, second, bytes(view[body_at:body_end])))
                at = end
        del buffer[:at]
        return frames

    def _check(self, frame: memoryview, seal: memoryview) -> None:
        digest = self._keyed.copy()
        digest.update(_NUMBER.pack(self._number))
        digest.update(frame)
        if not hmac.compare_digest(digest.digest(), seal):
            if self._number == 0:
                raise ReplicationError("the other end does not know the secret (ha.secret, ha.secret_file)")
            raise ReplicationError(f"frame {self._number} has a wrong seal: it was changed on its way")
        self._number += 1


def read_greeting(form: struct.Struct, data: bytes) -> tuple[bytes, ...]:
    """Return what a greeting (``HELLO``, ``CHALLENGE``) says behind its version: the nonce, and the proof of a master.

    Raises:
        ReplicationError: it speaks something else; says what to look at.
    """
    magic, version, *said = form.unpack(data)
    if magic != MAGIC:
        raise ReplicationError(
            "the other end does not speak FlintMQ's replication: a RocketMQ broker is followed, and may follow, with "
            "ha.compat: rocketmq at this end"
        )
    if version != VERSION:
        raise ReplicationError(f"the other end speaks version {version} of the replication, this one {VERSION}")
    return tuple(said)
