"""Encodes the stream between two FlintMQ brokers: both ends prove that they know a secret, and every frame is sealed.

::

    slave → master   "FMHA" 4 | version 2 | nonce of the slave 32
    master → slave   "FMHA" 4 | version 2 | nonce of the master 32 | proof 32
    slave → master   STATE, or GOODBYE
    master → slave   STATE, or GOODBYE
    slave → master   HELD …                        master → slave   DATA | HEARTBEAT …

    frame            type 1 | zeros 3 | size 4 | physical offset 8 | second position 8 | body | seal 16

Big-endian. Each direction has a key of its own, made of the secret and both nonces (HMAC-SHA256), so that nothing that was
recorded can be played to anybody again. The seal is keyed BLAKE2b over the frame's number in its direction, its header and its
body: a bit that flipped, a frame that is missing, repeated or out of order ends the connection. The proof is the master's,
before the slave says anything of itself; the slave's is the seal of its first frame. Nothing is encrypted: for that there is
TLS.

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
_HEADER: Final = struct.Struct(">B3xIqq")
_NUMBER: Final = struct.Struct(">Q")
_SEAL_BYTES: Final = 16
_MASTER: Final = b"flintmq replication 1: master to slave"
_SLAVE: Final = b"flintmq replication 1: slave to master"
_PROOF: Final = b"flintmq replication 1: proof of the master"


class FrameType(enum.IntEnum):
    """The types of frames."""

    STATE = 1
    DATA = 2
    HEARTBEAT = 3
    HELD = 4
    GOODBYE = 5


@attrs.frozen
class SealedFrame:
    """A frame whose seal was verified."""

    type: FrameType
    offset_bytes: int
    second_offset_bytes: int
    body: bytes


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
        self._key = key
        self._number = 0

    def seal(
        self, kind: FrameType, offset_bytes: int, second_offset_bytes: int = 0, body: bytes | memoryview = b""
    ) -> list[bytes | memoryview]:
        """Return the pieces of a frame, to be written in this order."""
        header = _HEADER.pack(kind, len(body), offset_bytes, second_offset_bytes)
        digest = hashlib.blake2b(_NUMBER.pack(self._number) + header, key=self._key, digest_size=_SEAL_BYTES)
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
        self._key = key
        self._max_bytes = max_bytes
        self._number = 0
        self._buffer = bytearray()

    def receive(self, data: bytes) -> list[SealedFrame]:
        """Take bytes; return the frames that are whole now.

        Raises:
            ReplicationError: a wrong seal, an unknown type, an enormous size, a negative position.
        """
        buffer = self._buffer
        buffer += data
        frames: list[SealedFrame] = []
        at = 0
        while len(buffer) - at >= _HEADER.size:
            kind, size, offset, second = _HEADER.unpack_from(buffer, at)
            if size > self._max_bytes:
                raise ReplicationError(f"the other end announced a frame of {size} bytes")
            body_at = at + _HEADER.size
            end = body_at + size + _SEAL_BYTES
            if end > len(buffer):
                break
            self._check(bytes(buffer[at : end - _SEAL_BYTES]), bytes(buffer[end - _SEAL_BYTES : end]))
            if kind not in FrameType.__members__.values() or offset < 0 or second < 0:
                raise ReplicationError(f"the other end sent a frame of type {kind} at position {offset}")
            frames.append(SealedFrame(FrameType(kind), offset, second, bytes(buffer[body_at : body_at + size])))
            at = end
        del buffer[:at]
        return frames

    def _check(self, frame: bytes, seal: bytes) -> None:
        digest = hashlib.blake2b(_NUMBER.pack(self._number), key=self._key, digest_size=_SEAL_BYTES)
        digest.update(frame)
        if not hmac.compare_digest(digest.digest(), seal):
            if self._number == 0:
                raise ReplicationError("the other end does not know the secret (ha.secret, ha.secret_file)")
            raise ReplicationError(f"frame {self._number} has a wrong seal: it was changed on its way")
        self._number += 1


def read_hello(data: bytes) -> bytes:
    """Return the slave's nonce.

    Raises:
        ReplicationError: it speaks something else; says what to look at.
    """
    magic, version, nonce = HELLO.unpack(data)
    _check_greeting(magic, version)
    return bytes(nonce)


def read_challenge(data: bytes) -> tuple[bytes, bytes]:
    """Return the master's nonce and its proof. Raises ReplicationError as :func:`read_hello` does."""
    magic, version, nonce, proof = CHALLENGE.unpack(data)
    _check_greeting(magic, version)
    return bytes(nonce), bytes(proof)


def _check_greeting(magic: bytes, version: int) -> None:
    if magic != MAGIC:
        raise ReplicationError(
            "the other end does not speak FlintMQ's replication: a RocketMQ broker is followed, and may follow, with "
            "ha.compat: rocketmq at this end"
        )
    if version != VERSION:
        raise ReplicationError(f"the other end speaks version {version} of the replication, this one {VERSION}")
