"""A view of a cluster: lists from background requests, and details on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Self

from flintmq.core.errors import FlintError
from flintmq.programs.cluster_view import detail, rows
from flintmq.programs.cluster_view.alarms import all_alarms, told_alarms
from flintmq.programs.cluster_view.history import History
from flintmq.programs.cluster_view.memory import NEVER, BrokerMemory, registered, speakers
from flintmq.programs.cluster_view.poll import PROGRESS, Pace, Poller
from flintmq.programs.cluster_view.values import BrokerView, GroupView, Overview, TopicView
from flintmq.remoting.client.admin import AdminClient

TICK_S: Final = 1.0
PATIENCE_S: Final = 1.5
"""Maximum number of seconds that a view waits for the brokers' answers. A slower broker is shown with its previous state."""


class ClusterView:
    """A view of all brokers that a name server lists, FlintMQ's and RocketMQ's. For the loop thread only.

    In an ``async with`` statement, the view sends requests in the background, so that lists are returned at once. The view
    pauses if nobody uses it for a minute. Without ``async with``, a method that returns a list first sends the due requests and
    waits for the answers. Details of a topic, group or broker are always fetched on demand.

    If a server does not answer, the methods raise no error. They return all rows, and the server's row contains the error.

    Args:
        admin: the administration client, which stays open.
        pace: the intervals of requests.
    """

    def __init__(self, admin: AdminClient, pace: Pace = Pace()) -> None:
        self._admin = admin
        self._pace = pace
        self._poller = Poller(admin, pace)
        self._brokers: dict[tuple[str, int], BrokerMemory] = {}
        self._polls: dict[tuple[str, int], asyncio.Task[None]] = {}
        self.history = History()
        """Figures of the cluster and its groups during the last ten minutes."""
        self._registry_error = ""
        self._registry_s = NEVER
        self._refreshed_s = NEVER
        self._looked_s = NEVER
        self._turn = asyncio.Lock()
        self._background: asyncio.Task[None] | None = None
        self._rows: tuple[float, dict[str, TopicView], dict[str, GroupView]] | None = None

    async def __aenter__(self) -> Self:
        self._looked_s = self._now_s()
        self._background = asyncio.create_task(self._run(), name="cluster view")
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the view's background requests. Idempotent."""
        tasks = [*self._polls.values(), *([self._background] if self._background is not None else [])]
        self._background = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._polls.clear()

    # --- lists ---

    async def overview(self) -> Overview:
        """Return the figures of the cluster, with its alarms and errors."""
        topics, groups = await self._looked()
        now_s = self._now_s()
        brokers = await self.brokers()
        wanted = [group for group in groups.values() if group.kind == "user"]
        lags = [group.lag for group in wanted if group.lag is not None]
        ages = [broker.age_s for broker in brokers if broker.age_s is not None and not broker.error]
        latencies = [one.put_latency_99_ms for one in brokers if one.put_latency_99_ms is not None and not one.error]
        answering = [broker for broker in brokers if not broker.error]
        return Overview(
            name_servers=tuple(self._admin.client.routes.name_servers),
            clusters=tuple(sorted({broker.cluster for broker in brokers})),
            age_s=max(ages, default=None),
            brokers=len(brokers),
            brokers_missing=len(brokers) - len(answering),
            topics=sum(topic.kind == "user" for topic in topics.values()),
            groups=len(wanted),
            put_per_s=sum(broker.put_per_s or 0.0 for broker in answering if broker.broker_id == 0),
            get_per_s=sum(broker.get_per_s or 0.0 for broker in answering),
            put_latency_99_ms=max(latencies, default=None),
            lag=sum(lags) if any(one.age_s(PROGRESS, now_s) is not None for one in self._speakers()) else None,
            groups_behind=sum(lag > 0 for lag in lags),
            conflicts=sum(bool(group.conflict) for group in wanted),
            stuck=sum(bool(group.stuck) for group in wanted),
            alarms=all_alarms(
                brokers, {group.name: group for group in wanted}, is_empty=not brokers and not self._registry_error
            ),
            errors=(self._registry_error,) if self._registry_error else (),
            offline_behind=tuple(
                sorted(
                    ((one.name, one.lag) for one in wanted if one.state == "offline" and one.lag),
                    key=lambda entry: (-entry[1], entry[0]),
                )
            ),
        )

    async def brokers(self) -> tuple[BrokerView, ...]:
        """Return all brokers of the cluster, without the brokers' settings."""
        await self._looked()
        now_s = self._now_s()
        ordered = sorted(self._brokers.values(), key=lambda one: (one.cluster, one.name, one.broker_id))
        return tuple(rows.broker_row(broker, now_s, told_alarms(broker)) for broker in ordered)

    async def topics(self) -> tuple[TopicView, ...]:
        """Return all topics without their queues, including the system's topics."""
        return tuple((await self._looked())[0].values())

    async def groups(self) -> tuple[GroupView, ...]:
        """Return all groups without their queues and members, including the system's groups."""
        return tuple((await self._looked())[1].values())

    # --- details ---

    async def broker(self, name: str, broker_id: int = 0) -> BrokerView | None:
        """Return a broker with its settings; None if no broker has the given name and id."""
        row = next((one for one in await self.brokers() if (one.name, one.broker_id) == (name, broker_id)), None)
        return None if row is None else await detail.broker_detail(self._admin, row)

    async def topic(self, name: str) -> TopicView | None:
        """Return a topic with its queues; None if no broker has the topic."""
        row = (await self._looked())[0].get(name)
        if row is None:
            return None
        return await detail.topic_detail(self._admin, row, [one for one in self._speakers() if name in one.topics])

    async def group(self, name: str) -> GroupView | None:
        """Return a group with its queues and members; None if no broker knows the group."""
        row = (await self._looked())[1].get(name)
        if row is None:
            return None
        self.history.watch(name)
        return await detail.group_detail(self._admin, row, [one for one in self._speakers() if name in one.groups])

    # --- inside ---

    async def refresh(self, *, all_due: bool = False) -> None:
        """Send the requests that are due to the name server and to each broker.

        Args:
            all_due: send all requests, as after a change, except for requests about one topic or group.
        """
        async with self._turn:
            now_s = self._now_s()
            if all_due or now_s - self._registry_s >= self._pace.figures_s:
                await self._ask_name_server()
            speaking = {(one.name, one.broker_id) for one in self._speakers()}
            for key, broker in self._brokers.items():
                if broker.is_registered and key not in self._polls:
                    poll = self._poller.poll(broker, speaks=key in speaking, all_due=all_due)
                    self._polls[key] = asyncio.create_task(poll, name=f"poll {broker.address}")
            if self._polls:
                await asyncio.wait(self._polls.values(), timeout=PATIENCE_S)
            for key in [key for key, task in self._polls.items() if task.done()]:
                self._polls.pop(key).result()
            self._refreshed_s = self._now_s()
            self.history.note(self._refreshed_s, self._brokers.values(), self._speakers())
            self._rows = None

    async def _run(self) -> None:
        while True:
            await self._turn_once()
            await asyncio.sleep(TICK_S)

    async def _turn_once(self) -> None:
        """Send the requests that are due, unless the view was not used for a while."""
        if self._now_s() - self._looked_s < self._pace.idle_s:
            await self.refresh()

    async def _looked(self) -> tuple[dict[str, TopicView], dict[str, GroupView]]:
        """Record the use of the view, and return all topics and groups, at most some seconds old."""
        if self._background is not None and self._background.done():
            # result() raises the error that ended the background task.
            self._background.result()
        now_s = self._looked_s = self._now_s()
        good_s = self._pace.figures_s + PATIENCE_S if self._background is not None else TICK_S
        if now_s - self._refreshed_s >= good_s:
            await self.refresh()
        if self._rows is None:
            now_s, telling = self._now_s(), self._speakers()
            topics, groups = rows.topic_rows(telling, now_s), rows.group_rows(telling, now_s, self._pace.stuck_s)
            self._rows = (now_s, topics, groups)
        return self._rows[1], self._rows[2]

    async def _ask_name_server(self) -> None:
        now_s = self._registry_s = self._now_s()
        try:
            info = await self._admin.cluster_info()
        except FlintError as error:
            self._registry_error = f"name servers: {error}"
            return
        self._registry_error = ""
        for broker in self._brokers.values():
            broker.is_registered = False
        for told in registered(info):
            known = self._brokers.setdefault((told.name, told.broker_id), told)
            if known.address != told.address:
                known = self._brokers[told.name, told.broker_id] = told
            known.is_registered, known.seen_s = True, now_s
        self._brokers = {
            key: broker
            for key, broker in self._brokers.items()
            if broker.is_registered or now_s - broker.seen_s < self._pace.forget_s
        }

    def _speakers(self) -> Sequence[BrokerMemory]:
        return speakers(self._brokers.values())

    def _now_s(self) -> float:
        return self._admin.client.clock.monotonic_s()
