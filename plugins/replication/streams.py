"""Encodes and decodes the two streams of replication: RocketMQ's stream, and FlintMQ's stream with authenticated frames.

RocketMQ's stream (docs/internals/store-format.md, Replication stream)::

    slave → master   end of the slave's log 8            the first is a request, every further one an acknowledgement
    master → slave   physical offset 8 | size 4 | bytes of the log; size 0 is a heartbeat

FlintMQ's stream, in which both brokers prove that they know a secret. Each frame ends with a *seal*, a keyed hash of the
frame::

    slave → master   "FMHA" 4 | version 2 | nonce of the slave 32
    master → slave   "FMHA" 4 | version 2 | nonce of the master 32 | proof 32
    slave → master   STATE, or GOODBYE
    master → slave   STATE, or GOODBYE
    slave → master   HELD …                        master → slave   DATA | HEARTBEAT …

    frame            type 1 | zeros 3 | size 4 | physical offset 8 | second position 8 | body | seal 16

Both streams are big-endian. A frame never crosses the end of a file of the log, but it may end within a record.

Each direction has its own key, derived from the secret and both nonces (HMAC-SHA256), so that recorded frames cannot be
replayed. The seal is keyed BLAKE2b over the frame's number in its direction, its header and its body. A changed bit and a frame
that is missing, repeated or out of order end the connection. The master sends its proof before the slave sends any data. The
slave's proof is the seal of its first frame. Frames are encrypted only if the connection uses TLS.

The ``second position`` of DATA and HEARTBEAT is the physical offset up to which the master has acknowledged messages or shown
them to clients. It is zero in HELD and STATE. The body of STATE is JSON
(:class:`flintmq.plugins.replication.agreement.LogState`), the body of GOODBYE is a reason in UTF-8.
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
    """The types of frames of replication. RocketMQ's stream has DATA, HEARTBEAT and HELD."""

    STATE = 1
    DATA = 2
    HEARTBEAT = 3
    HELD = 4
    GOODBYE = 5


_TYPES: Final = {int(one): one for one in FrameType}


@attrs.define
class Frame:
    """A decoded frame of replication. Frames must not be changed. The class is not frozen, because a sync master gets a frame
    for each message and frozen instances take longer to create."""

    type: FrameType
    offset_bytes: int
    """Physical offset in the frame's header. In a DATA frame, this offset is the position of the frame's first byte of data in
    the log."""
    second_offset_bytes: int | None
    """Physical offset up to which the master has acknowledged messages or shown them to clients. It is the second offset in the
    header of a frame of type DATA or HEARTBEAT, and 0 in a frame of type HELD or STATE. None in RocketMQ's stream, whose frames
    do not contain this offset."""
    body: bytes = b""


def plain_pieces(kind: FrameType, offset_bytes: int, _second_offset_bytes: int = 0, body: Buffer = b"") -> list[Buffer]:
    """Return a frame of RocketMQ's stream as a list of byte strings. The list is empty if RocketMQ's stream lacks this type of
    frame."""
    if kind is FrameType.HELD:
        return [_REPORT.pack(offset_bytes)]
    if kind not in (FrameType.DATA, FrameType.HEARTBEAT):
        return []
    header = _PLAIN_HEADER.pack(offset_bytes, len(body))
    return [header, body] if body else [header]


class Reports:
    """Decodes the reports of a slave in RocketMQ's stream. Only the newest complete report is used."""

    def __init__(self) -> None:
        self._rest = b""

    def receive(self, data: bytes) -> list[Frame]:
        """Add received bytes of a slave; return the newest complete report, or an empty list. Raises ReplicationError for a
        negative offset."""
        data = self._rest + data
        whole = len(data) - len(data) % _REPORT.size
        self._rest = data[whole:]
        if not whole:
            return []
        (newest,) = _REPORT.unpack_from(data, whole - _REPORT.size)
        if newest < 0:
            raise ReplicationError(f"the slave reports the invalid position {newest}")
        return [Frame(FrameType.HELD, newest, None)]


class Frames:
    """Decodes the frames of a master in RocketMQ's stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def receive(self, data: bytes) -> list[Frame]:
        """Add received bytes; return the frames that are complete now.

        Raises:
            ReplicationError: a size is negative or above the limit, or an offset is negative.
        """
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        at = 0
        with memoryview(buffer) as view:
            while len(view) - at >= _PLAIN_HEADER.size:
                offset, size = _PLAIN_HEADER.unpack_from(view, at)
                if offset < 0 or not 0 <= size <= HA_FRAME_MAX_BYTES:
                    raise ReplicationError(
                        f"the master sent an invalid frame header: {size} bytes at position {offset}"
                    )
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
    """The keys that authenticate the frames of one connection between master and slave, one key for each direction."""

    master: bytes = attrs.field(repr=False)
    """Key with which the master computes the seals (keyed hashes) of its frames."""
    slave: bytes = attrs.field(repr=False)
    """Key with which the slave computes the seals (keyed hashes) of its frames."""

    @classmethod
    def derive(cls, secret: bytes, slave_nonce: bytes, master_nonce: bytes) -> Keys:
        """Return the keys of a connection, derived from the secret and the nonces of master and slave."""
        nonces = slave_nonce + master_nonce
        return cls(
            hmac.digest(secret, _MASTER + nonces, "sha256"),
            hmac.digest(secret, _SLAVE + nonces, "sha256"),
        )

    @property
    def proof(self) -> bytes:
        """Return the bytes by which a master proves to a slave that it knows the shared secret."""
        return hmac.digest(self.master, _PROOF, "sha256")


class Sealer:
    """Encodes the frames of one direction of a replication connection, and adds a seal (a keyed hash) to each frame. A seal
    depends on the number of its frame, so the frames must be encoded in the order in which they are sent."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=_SEAL_BYTES)
        self._number = 0

    def seal(
        self, kind: FrameType, offset_bytes: int, second_offset_bytes: int = 0, body: Buffer = b""
    ) -> list[Buffer]:
        """Return a frame of replication with its seal (a keyed hash), as a list of byte strings to send in this order."""
        header = _SEALED_HEADER.pack(kind, len(body), offset_bytes, second_offset_bytes)
        digest = self._keyed.copy()
        digest.update(_NUMBER.pack(self._number) + header)
        digest.update(body)
        self._number += 1
        return [header, body, digest.digest()]


class Unsealer:
    """Decodes the frames of one direction of a replication connection, and checks their seals (keyed hashes).

    Args:
        key: key of the direction.
        max_bytes: limit of a frame's body, which is buffered before its seal can be checked.
    """

    def __init__(self, key: bytes, max_bytes: int = HA_FRAME_MAX_BYTES) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=_SEAL_BYTES)
        self._max_bytes = max_bytes
        self._number = 0
        self._buffer = bytearray()

    def receive(self, data: bytes) -> list[Frame]:
        """Add received bytes; return the frames that are complete now.

        Raises:
            ReplicationError: a seal is wrong, a type is unknown, a size is above the limit, or an offset is negative.
        """
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        at = 0
        with memoryview(buffer) as view:
            while len(view) - at >= _SEALED_HEADER.size:
                kind, size, offset, second = _SEALED_HEADER.unpack_from(view, at)
                if size > self._max_bytes:
                    raise ReplicationError(f"the other end announced a frame of {size} bytes, which is too large")
                body_at = at + _SEALED_HEADER.size
                body_end = body_at + size
                end = body_end + _SEAL_BYTES
                if end > len(view):
                    break
                self._check(view[at:body_end], view[body_end:end])
                if kind not in _TYPES or offset < 0 or second < 0:
                    raise ReplicationError(f"the other end sent an invalid frame: type {kind}, position {offset}")
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
            raise ReplicationError(
                f"frame {self._number} has a wrong message authentication code (MAC): its bytes were changed in transit"
            )
        self._number += 1


def read_greeting(form: struct.Struct, data: bytes) -> tuple[bytes, ...]:
    """Return the fields of a greeting after its version: the nonce and, in the greeting of a master, the proof.

    Args:
        form: ``HELLO`` for the greeting of a slave, ``CHALLENGE`` for that of a master.
        data: the bytes of the greeting.

    Raises:
        ReplicationError: the other broker uses another protocol or version. For another protocol, the error's text names
            the setting to change.
    """
    magic, version, *said = form.unpack(data)
    if magic != MAGIC:
        raise ReplicationError(
            "the other end does not use FlintMQ's replication protocol: if it is a RocketMQ broker, set ha.compat: rocketmq at "
            "this end"
        )
    if version != VERSION:
        raise ReplicationError(
            f"the other end uses version {version} of the replication protocol, this end version {VERSION}"
        )
    return tuple(said)
