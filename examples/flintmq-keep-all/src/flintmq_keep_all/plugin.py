"""The module that the entry point names: it registers two services that replace the built-in services of the same names."""

from __future__ import annotations

from flintmq.core.kernel.hookspecs import RegisterService, hookimpl


class KeepAll:
    """A service that does nothing. As the service for retention it deletes no file, and as the service for replication it
    copies no data."""

    def start(self) -> None:
        """Do nothing at the start of the broker: the service has no periodic work."""

    def stop(self) -> None:
        """Do nothing at the stop of the broker: the service holds no resources."""


@hookimpl
def flintmq_services(register: RegisterService) -> None:
    register("retention", lambda _context: KeepAll())
    register("replication", lambda _context: KeepAll())
