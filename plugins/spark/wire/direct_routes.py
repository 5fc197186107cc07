"""Routes for readers with a broker's address and no name server."""

from __future__ import annotations

from flintmq.core.errors import RefusedError
from flintmq.core.response_code import ResponseCode
from flintmq.core.route.route_data import BrokerData, QueueData, TopicRouteData
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.client.route import RouteCache


class DirectRoutes(RouteCache):
    """Asks one broker for its topics, as if it were all there is. Loop thread only."""

    def __init__(self, instance: ClientInstance, address: str) -> None:
        super().__init__(instance.remoting, (), instance.clock)
        self._admin = AdminClient(client=instance)
        self._address = address
        self._broker_name: str | None = None

    async def topics(self) -> list[str]:
        """Every topic of the broker."""
        return sorted((await self._admin.topic_configs(self._address)).topic_config_table)

    async def fetch(self, topic: str) -> TopicRouteData:
        """The topic as the broker has it. Raises ``RefusedError`` where it has none, ``RemotingError``."""
        if self._broker_name is None:
            self._broker_name = (await self._admin.broker_config(self._address)).get("brokerName", "")
        config = (await self._admin.topic_configs(self._address)).topic_config_table.get(topic)
        if config is None:
            message = f"no topic {topic} at {self._address}"
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, message, reason="topic.unknown")
        return TopicRouteData(
            broker_datas=[BrokerData(broker_addrs={0: self._address}, broker_name=self._broker_name)],
            queue_datas=[
                QueueData(
                    broker_name=self._broker_name,
                    perm=config.perm,
                    read_queue_nums=config.read_queue_nums,
                    topic_sys_flag=config.topic_sys_flag,
                    write_queue_nums=config.write_queue_nums,
                )
            ],
        )
