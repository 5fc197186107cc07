"""Publishes a supervisor's information through the brokers that the supervisor runs: restarts, the reasons of restarts, and
brokers that are down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import attrs
import msgspec

from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.core.kernel.ports.alarm import CRITICAL, Alarm

if TYPE_CHECKING:
    from flintmq.core.kernel.hookspecs import ApiContext, RegisterService


@attrs.define
class Supervised:
    """A plugin and service of a supervised broker, which reports the broker's restarts and other brokers that are down.

    The figures and alarms appear in answers to the request GET_BROKER_RUNTIME_INFO (code 28) and in ``flintmq status``.
    """

    plugin_name = "supervised"

    restarts: int
    last_end: str
    """How the broker's previous process ended; empty for the broker's first process."""
    down: dict[str, str] = attrs.field(factory=dict)
    """Other brokers that are down: how each broker's process ended, keyed by the broker's name. This broker reports them,
    because a broker that is down cannot answer."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the plugin of a supervised broker for a text ``RESTARTS:REASON``, which has the number of the broker's
        restarts and the reason of the last restart."""
        restarts, _, last_end = text.partition(":")
        return cls(int(restarts), last_end)

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("supervised", self._service)

    def _service(self, _context: ApiContext[object]) -> Supervised:
        return self

    def told(self, line: bytes) -> None:
        """Store the names of the supervisor's other brokers that are down, and how their processes ended. Used only on the
        event loop's thread.

        Args:
            line: a JSON object that maps the name of each broker that is down to a text that says how the broker's process
                ended.
        """
        self.down = msgspec.json.decode(line, type=dict[str, str])

    def alarms(self) -> list[Alarm]:
        """Return an alarm for each other broker that is down."""
        text = "{} {} and does not serve yet; its supervisor starts it again, and the log says when"
        return [Alarm("broker.missing", CRITICAL, name, text.format(name, how)) for name, how in self.down.items()]

    def start(self) -> None:
        """Do nothing at a broker's start: the supervisor runs in another process."""

    def stop(self) -> None:
        """Do nothing at a broker's stop: the supervisor runs in another process."""

    def runtime_info(self) -> Mapping[str, str]:
        """Return the figures of a supervised broker, keyed by name.

        ``supervisorRestarts`` is the number of times that the supervisor restarted the broker. After a restart,
        ``supervisorLastEnd`` is a text that describes how the broker's previous process ended, for example ``was ended by
        SIGKILL``.
        """
        found = {"supervisorRestarts": str(self.restarts)}
        return found | ({"supervisorLastEnd": self.last_end} if self.last_end else {})
