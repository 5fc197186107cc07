"""A slave takes over its master's topics, groups and offsets, now and then (reference: algorithms 9)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from flintmq.core.broker.data_version import DataVersion
from flintmq.core.broker.state import BrokerState
from flintmq.core.errors import FlintError, JsonSyntaxError
from flintmq.core.io import fastjson
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.codes import RequestCode
from flintmq.remoting.command import request

log = logging.getLogger("flintmq.ha")

TIMEOUT_MS = 5_000
FIRST_WAIT_S = 0.5
REST_S = 0.1
"""Between two rounds that were asked for: a table may have thousands of topics."""


class SlaveSynchronize:
    """Asks the master at every interval. Loop thread.

    Args:
        state: the slave's.
        client: speaks to the master.
        master_address: where clients reach the master; empty while nobody knows.
        interval_s: how often.
    """

    def __init__(
        self, state: BrokerState, client: RemotingClient, master_address: Callable[[], str], interval_s: float
    ) -> None:
        self._state = state
        self._client = client
        self._master_address = master_address
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None
        self._told = ""
        self._wanted = asyncio.Event()
        self.rounds = 0
        """Rounds in which everything was taken over."""

    def start(self) -> None:
        """Begins to ask."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """There is news: asks soon, whatever the interval."""
        self._wanted.set()

    async def stop(self) -> None:
        """Asks no more. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            address = self._master_address()
            if address:
                await self._round(address)
            rest_s = min(REST_S, self._interval_s)
            await asyncio.sleep(rest_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    (self._interval_s if self.rounds else min(FIRST_WAIT_S, self._interval_s)) - rest_s
                ):
                    await self._wanted.wait()
            self._wanted.clear()

    async def _round(self, address: str) -> None:
        try:
            await self.synchronize(address)
            self.rounds += 1
            self._told = ""
        except FlintError as error:
            if str(error) != self._told:
                self._told = str(error)
                log.warning("topics, groups and offsets of the master at %s: %s", address, error)
        except (ValueError, TypeError, AttributeError) as error:  # tables of another shape than expected
            log.exception("the tables of the master at %s cannot be taken over: %s", address, error)

    async def synchronize(self, address: str) -> None:
        """Takes everything over, once.

        Raises:
            RemotingError: the master does not answer.
            StoreError: the disk refused a table.
        """
        state = self._state
        topics = await self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        if topics is not None and (
            state.topics.learned or DataVersion.from_wire(topics.get("dataVersion")) != state.topics.data_version
        ):
            state.topics.replace(topics)
            state.topics.persist()
            state.topics.on_change()
        offsets = await self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        if offsets is not None:
            state.offsets.replace(offsets)
            state.offsets.persist()
        delays = await self._ask(address, RequestCode.GET_ALL_DELAY_OFFSET)
        if delays is not None:
            state.schedule.replace(delays)
            state.schedule.persist()
        groups = await self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        if groups is not None and DataVersion.from_wire(groups.get("dataVersion")) != state.groups.data_version:
            state.groups.replace(groups)
            state.groups.persist()

    async def _ask(self, address: str, code: RequestCode) -> dict[str, Any] | None:
        """A table; None where the master has none (code 1), or none that can be read."""
        answer = await self._client.invoke(address, request(code, language="JAVA"), TIMEOUT_MS)
        if answer.code != 0:
            if answer.code != 1:
                raise FlintError(f"{code.name} is refused: {answer.remark}")
            return None
        try:
            table = fastjson.loads(answer.body)
        except JsonSyntaxError as error:
            raise FlintError(f"{code.name}: {error}") from error
        if not isinstance(table, dict):
            raise FlintError(f"{code.name}: the answer is no table")
        return table
