"""What a supervised broker tells of its supervisor: how often it was started again, why, and which others are down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import attrs
import msgspec

from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.core.kernel.ports.alarm import CRITICAL, Alarm

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.kernel.hookspecs import RegisterService


@attrs.define
class Supervised:
    """A plugin of the broker's process, and its service: figures and alarms for request 28 and ``flintmq status``."""

    plugin_name = "supervised"

    restarts: int
    last_end: str
    """How the process before this one ended; empty for the first one."""
    down: dict[str, str] = attrs.field(factory=dict)
    """Name → how it ended, of the supervisor's other brokers that do not serve: they cannot tell it themselves."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what ``RESTARTS:REASON`` says."""
        restarts, _, last_end = text.partition(":")
        return cls(int(restarts), last_end)

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("supervised", self._service)

    def _service(self, _api: BrokerApi) -> Supervised:
        return self

    def told(self, line: bytes) -> None:
        """Take what the supervisor says of the other brokers: a JSON object, as :attr:`down`. Loop thread."""
        self.down = msgspec.json.decode(line, type=dict[str, str])

    def alarms(self) -> list[Alarm]:
        """Return an alarm for each broker that is down."""
        text = "{} {} and does not serve yet; its supervisor starts it again, and the log says when"
        return [Alarm("broker.missing", CRITICAL, name, text.format(name, how)) for name, how in self.down.items()]

    def start(self) -> None:
        """Do nothing: the supervisor lives in another process."""

    def stop(self) -> None:
        """Do nothing."""

    def runtime_info(self) -> Mapping[str, str]:
        """Return the figures ``supervisorRestarts`` and, where there was one, ``supervisorLastEnd``."""
        found = {"supervisorRestarts": str(self.restarts)}
        return found | ({"supervisorLastEnd": self.last_end} if self.last_end else {})
