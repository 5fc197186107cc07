"""The service of a slave: its connection to the master, and the master's tables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flintmq.core.kernel.ports.replication import MasterDirectory
from flintmq.plugins.broker.secure_links import name_server_client, replication_client_tls
from flintmq.plugins.replication.link_settings import link_settings, wants_tls
from flintmq.plugins.replication.slave_service import HaSlaveService
from flintmq.plugins.replication.slave_synchronize import SlaveSynchronize
from flintmq.plugins.replication.store_log import SlaveStoreLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.kernel.ports import RecordBatch


class SlaveReplication:
    """Copies the log and the tables of a master. Loop thread.

    Args:
        api: the broker.

    Raises:
        ConfigError: the secret is missing.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        config, store = api.config, api.store
        self._client = name_server_client(config)
        self.slave = HaSlaveService(
            SlaveStoreLog(store, config.broker.name, api.address.host_port),
            link_settings(config),
            api.clock,
            find_master=self._find_master,
            reconnect_s=config.ha.reconnect_interval_ms / 1000,
            on_appended=self._appended,
            make_context=partial(replication_client_tls, config) if wants_tls(config) else None,
        )
        self.synchronize = SlaveSynchronize(
            api, self._client, self._master_client_address, config.ha.sync_interval_ms / 1000
        )
        store.reput.arrived.subscribe(self._arrived)

    @property
    def ha_port(self) -> int:
        """The port that slaves would replicate from, once this broker is the master."""
        return self._api.config.listen.ha_port or self._api.address.listening_port + 1

    @property
    def is_following(self) -> bool:
        """Whether the master can be reached, and is followed."""
        return self.slave.is_following

    def start(self) -> None:
        """Do nothing: the master may have to be asked for at name servers, which know this broker once it is ready."""

    def ready(self) -> None:
        """Begin to follow the master."""
        self.slave.start()
        self.synchronize.start()

    async def withdraw(self) -> None:
        """End the connections to the master."""
        await self.synchronize.stop()
        await self.slave.stop()

    async def stop(self) -> None:
        await self._client.close()

    def runtime_info(self) -> dict[str, str]:
        """Return figures for request 28."""
        return self.slave.runtime_info()

    def _appended(self, messages: int, size_bytes: int) -> None:
        self._api.stats.replicated(messages, size_bytes)
        self._api.dispatch()

    def _arrived(self, batch: RecordBatch) -> None:
        self._learn(batch.queues())

    def _learn(self, queues: Iterable[tuple[str, int]]) -> None:
        """Note the queues of topics that the master's table does not have yet."""
        topics = self._api.topics
        seen: dict[str, int] = {}
        for topic, queue_id in queues:
            if topic not in topics or topic in topics.learned:
                seen[topic] = max(seen.get(topic, 0), queue_id + 1)
        news = [topics.learn(topic, queue_nums) for topic, queue_nums in seen.items()]
        if any(news):
            self.synchronize.wake()

    def _directory(self) -> MasterDirectory | None:
        return next(self._api.services_with(MasterDirectory), None)  # type: ignore[type-abstract]

    def _master_client_address(self) -> str:
        directory = self._directory()
        known = directory.master_address if directory is not None else ""
        return known or self.slave.master_client_address

    async def _find_master(self) -> str | None:
        configured, directory = self._api.config.ha.master_address, self._directory()
        if configured is not None or directory is None:
            return configured
        await directory.register_all()  # it may have come, or moved, since the last time
        return directory.master_ha_address or None
