"""What a supervised broker tells of its supervisor: how often it was started again, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import attrs

from flintmq.core.kernel.hookspecs import hookimpl

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.kernel.hookspecs import RegisterService


@attrs.frozen
class Supervised:
    """A plugin of the broker's process, and its service, which has figures only, for request 28 and ``flintmq status``."""

    plugin_name = "supervised"

    restarts: int
    last_end: str
    """How the process before this one ended; empty for the first one."""

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

    def start(self) -> None:
        """Do nothing: the supervisor lives in another process."""

    def stop(self) -> None:
        """Do nothing."""

    def runtime_info(self) -> Mapping[str, str]:
        """Return the figures ``supervisorRestarts`` and, where there was one, ``supervisorLastEnd``."""
        found = {"supervisorRestarts": str(self.restarts)}
        return found | ({"supervisorLastEnd": self.last_end} if self.last_end else {})
