"""The service ``replication``: on a master it sends the log to slaves, on a slave it copies the master's log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from flintmq.config.errors import ConfigError
from flintmq.core.broker.role import SLAVE, SYNC_MASTER
from flintmq.core.errors import FlintError
from flintmq.core.kernel.ports.replication import MasterDirectory
from flintmq.core.log_events import event_log

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.kernel.ports import Alarm
    from flintmq.plugins.replication.master import MasterReplication
    from flintmq.plugins.replication.slave import SlaveReplication

log = event_log("flintmq.ha")


class ReplicationService:
    """Runs replication for the broker's role: a master sends its log to slaves, a slave copies its master's log. Used only on
    the event loop's thread.

    When the role changes, the object for the former role stops using the log at once. The object for the new role is created
    before any message is appended. A task then closes the sockets and ends the tasks of the former object. It opens the sockets
    and starts the tasks of the new object.

    Args:
        api: the broker.

    Raises:
        ConfigError: the secret is missing.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._kind = api.role.kind
        self.end: MasterReplication | SlaveReplication | None = self._made()
        """Replication as a master or as a slave; None on a master for which replication is disabled."""
        self._switching: asyncio.Task[None] | None = None
        """Task that changes replication from the broker's former role to its new role; None before the first change of the
        role."""
        self._trouble = ""
        api.role.changed.subscribe(self._role_changed)

    def _made(self) -> MasterReplication | SlaveReplication | None:
        api = self._api
        if api.role.kind == SLAVE:
            from flintmq.plugins.replication.slave import SlaveReplication

            return SlaveReplication(api)
        if api.role.kind == SYNC_MASTER or api.settings.current.ha.enable:
            from flintmq.plugins.replication.master import MasterReplication

            return MasterReplication(api)
        return None

    def _role_changed(self) -> None:
        if self._api.role.kind == self._kind:
            return
        self._kind = self._api.role.kind
        former, self.end = self.end, None
        if former is not None:
            former.halt()
        try:
            self.end = self._made()
        finally:
            self._switching = asyncio.get_running_loop().create_task(self._switch(self._switching, former, self.end))

    async def _switch(
        self,
        earlier: asyncio.Task[None] | None,
        former: MasterReplication | SlaveReplication | None,
        new: MasterReplication | SlaveReplication | None,
    ) -> None:
        """Stop the object that replicated the log in the broker's former role (master or slave), and start the object for the
        new role. If the role has changed again meanwhile, the new object is not started. Errors are logged."""
        if earlier is not None:
            await asyncio.wait((earlier,))
        try:
            if former is not None:
                await former.withdraw()
                await former.stop()
            self._trouble = ""
            if new is not None and new is self.end:
                new.start()
                await new.ready()
                for directory in self._api.parts(MasterDirectory):  # type: ignore[type-abstract]
                    # The broker registers again after a role change, so that name servers know the port for slaves.
                    await directory.register_all()
        except (FlintError, ConfigError, OSError) as error:
            self._trouble = f"replication does not run since the role changed to {self._kind}: {error}"
            log.error(
                "replication.role_not_taken",
                "replication does not run since the role changed to %(role)s: %(error)s",
                role=self._kind,
                error=error,
            )

    async def settle(self) -> None:
        """Wait until the task for the last change of the role has ended. This task closes the sockets for the former role and
        opens the sockets for the new role."""
        if self._switching is not None:
            await self._switching

    @property
    def ha_port(self) -> int:
        """Port on which slaves replicate from this broker, now or after it becomes the master; 0 while the port is unknown."""
        return self.end.ha_port if self.end is not None else 0

    @property
    def is_following(self) -> bool:
        """Whether this broker is a slave that receives its master's log."""
        return self.end is not None and self.end.is_following

    def start(self) -> None:
        """Bind the port for slaves, on a master.

        Raises:
            ConfigError: other machines can reach the port, and no secret protects it.
            RemotingError: the port is in use.
        """
        if self.end is not None and self._switching is None:
            self.end.start()

    async def ready(self) -> None:
        """Listen for slaves, or connect to the master. Raises ``ConfigError`` if encryption lacks a certificate."""
        if self._switching is not None:
            await self._switching
        elif self.end is not None:
            await self.end.ready()

    async def withdraw(self) -> None:
        """Close the connections to slaves, or to the master."""
        await self.settle()
        if self.end is not None:
            await self.end.withdraw()

    async def stop(self) -> None:
        """Close the port for slaves."""
        if self.end is not None:
            await self.end.stop()

    def runtime_info(self) -> Mapping[str, str]:
        """Return the figures of replication for GET_BROKER_RUNTIME_INFO (request 28)."""
        return self.end.runtime_info() if self.end is not None else {}

    def health(self) -> str:
        """Return the error because of which replication has not run since the role changed; empty if replication runs."""
        return self._trouble

    def alarms(self) -> Iterator[Alarm]:
        """Yield the alarms about the slaves, or about the master."""
        if self.end is not None:
            yield from self.end.alarms()
