"""The bounded queues of a broker: one for each name, with the capacity that the settings give it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from flintmq.config.sections.service import AdmissionSection
from flintmq.programs.broker.plugin_server import Pools


def test_a_thread_pool_is_created_only_once_for_each_name() -> None:
    """Two processors that name one queue share its bound."""
    admission = AdmissionSection(send_queue=7, admin_queue=5)
    pools = Pools(AsyncExitStack(), admission)
    assert pools.get("send") is pools.get("send")
    assert (pools.get("send").capacity, pools.get("mine").capacity) == (7, 5)
    assert pools.get("mine").key == "admission.admin_queue"
    assert set(pools.by_name) == {"send", "mine"}


def test_two_processors_that_name_the_same_thread_pool_share_its_threads() -> None:
    """A plugin's pool of threads must not outlive the broker that it serves."""

    async def live() -> None:
        async with AsyncExitStack() as held:
            pools = Pools(held, AdmissionSection())
            first = pools.get("mine", 1).threads
            assert first is not None
            assert pools.get("mine", 3).threads is first

    asyncio.run(live())


def test_thread_pools_publish_the_number_of_waiting_requests() -> None:
    """Under RocketMQ's names: four of them in request 28, all that there are as a metric."""
    pools = Pools(AsyncExitStack(), AdmissionSection(send_queue=7))
    pools.get("send").waiting = 3
    pools.get("client")
    figures = pools.figures()
    assert (figures["sendThreadPoolQueueSize"], figures["sendThreadPoolQueueCapacity"]) == (3, 7)
    assert (figures["EndTransactionQueueSize"], figures["pullThreadPoolQueueHeadWaitTimeMills"]) == (0, 0)
    assert len(figures) == 11
    told = {(one.name, one.labels["processor"], one.value) for one in pools.measurements()}
    assert told == {
        ("rocketmq_processor_watermark", "send", 3),
        ("rocketmq_processor_watermark", "client_manager", 0),
    }
