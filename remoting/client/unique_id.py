"""Ids that a client gives its messages (UNIQ_KEY) and itself (docs/internals/store-format.md, Identifiers).

::

    ip 4|16 bytes | process id int16 | random int32 | ms since the first of the month int32 | counter int16

in upper-case hex. RocketMQ uses the hash of a class loader in place of the random number. Either value distinguishes the
clients of one process.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import threading
import time
from typing import Final

from flintmq.core.io import chance
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.record.host import pack_ip

_IDS_AT_A_TIME: Final = 4_096
"""Maximum number of ids that are made from one reading of the clock. Ids with the same time must differ in their 16-bit
counters."""


def local_ip() -> str:
    """Return the address of this machine's outgoing interface, or ``127.0.0.1`` if there is none. Sends no packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def make_client_id(ip: str | None = None, instance_name: str | None = None) -> str:
    """Return a client id: ``ip@instance_name``, or a unique ``ip@pid#number`` if no instance name is given."""
    return f"{ip or local_ip()}@{instance_name or f'{os.getpid()}#{chance.bits(48)}'}"


class UniqueIdMaker:
    """Makes UNIQ_KEYs. Thread-safe.

    Args:
        ip: an IPv4 or IPv6 address; by default this machine's.
        clock: the source of the time in each id.
    """

    def __init__(self, ip: str | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        packed = pack_ip(ip or local_ip())
        self._head = (packed + struct.pack(">HI", os.getpid() & 0xFFFF, chance.bits(32))).hex().upper()
        self._clock = clock
        self._counter = itertools.count()
        self._lock = threading.Lock()
        self._month_start_ms = 0
        self._month_end_ms = 0

    def make(self) -> str:
        """Return a new UNIQ_KEY of 32 hexadecimal digits, or of 56 if it contains an IPv6 address."""
        now_ms = self._clock.now_ms()
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._set_month(now_ms)
        return f"{self._head}{now_ms - self._month_start_ms & 0xFFFFFFFF:08X}{next(self._counter) & 0xFFFF:04X}"

    def make_many(self, count: int) -> list[str]:
        """Return ``count`` new UNIQ_KEYs."""
        found: list[str] = []
        while len(found) < count:
            found += self._make_some(min(count - len(found), _IDS_AT_A_TIME))
        return found

    def _make_some(self, count: int) -> list[str]:
        now_ms = self._clock.now_ms()
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._set_month(now_ms)
        start = f"{self._head}{now_ms - self._month_start_ms & 0xFFFFFFFF:08X}"
        return [f"{start}{number & 0xFFFF:04X}" for number in itertools.islice(self._counter, count)]

    def _set_month(self, now_ms: int) -> None:
        with self._lock:
            now = time.localtime(now_ms / 1000)
            self._month_start_ms = int(time.mktime((now.tm_year, now.tm_mon, 1, 0, 0, 0, 0, 0, -1))) * 1000
            following = (now.tm_year + now.tm_mon // 12, now.tm_mon % 12 + 1)
            self._month_end_ms = int(time.mktime((*following, 1, 0, 0, 0, 0, 0, -1))) * 1000
