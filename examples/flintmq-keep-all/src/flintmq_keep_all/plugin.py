"""What the entry point names: two services with the names of built-in ones, which they replace."""

from __future__ import annotations

from flintmq.core.kernel.hookspecs import ApiContext, RegisterService, hookimpl


class KeepAll:
    """A retention that deletes no file, and a replication that sends and copies nothing.

    Args:
        context: has the broker.
    """

    def __init__(self, context: ApiContext[None]) -> None:
        self.api = context.api

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


@hookimpl
def flintmq_services(register: RegisterService) -> None:
    register("retention", KeepAll)
    register("replication", KeepAll)
