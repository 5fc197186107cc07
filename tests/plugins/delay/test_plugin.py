"""Delay levels are one folder: a broker has them by its plugin, and runs without it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import flintmq
from flintmq.config import BrokerConfig
from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.config.sections.models import ListenSection, StoreSection
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.delay.plugin import DelayService
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request
from flintmq.testing.clock import VirtualClock
from flintmq.testing.embedded import EmbeddedBroker
from flintmq.tests.support.roles import become_master, become_slave, is_timed, on_loop


def config(root: Path, *disabled: str) -> BrokerConfig:
    listen = ListenSection(host="127.0.0.1", port=0)
    return BrokerConfig(listen=listen, store=StoreSection(path=str(root)), disabled_plugins=disabled)


async def ask(broker: flintmq.Broker, code: RequestCode) -> Any:
    client = RemotingClient()
    try:
        fields = {"acceptStandardJsonOnly": "true"}
        return await client.invoke(broker.address, request(code, fields), 5_000)
    finally:
        await client.close()


def test_the_delay_plugin_stores_a_delayed_message_in_the_schedule_topic(
    tmp_path: Path,
) -> None:
    """A slave reads the positions of its master by request 45."""

    async def live() -> None:
        async with flintmq.Broker(config(tmp_path)) as broker:
            (put,) = await broker.put([flintmq.Message("T", b"later", delay_level=3)])
            store = broker.state.store
            record = store.reader.message_at(put.commit_log_offset_bytes)
            assert record is not None
            assert (record.topic, record.queue_id) == (SCHEDULE_TOPIC, 2)
            broker.state.service(DelayService).schedule.replace({"offsetTable": {3: 7}})
            answer = await ask(broker, RequestCode.GET_ALL_DELAY_OFFSET)
            assert json.loads(answer.body) == {"offsetTable": {"3": 7}}

    asyncio.run(live())


def test_a_broker_without_the_delay_plugin_delivers_delayed_messages_at_once(tmp_path: Path) -> None:
    """What it takes no part in is as if it had never been there."""

    async def live() -> None:
        async with flintmq.Broker(config(tmp_path, "delay")) as broker:
            plain, delayed = await broker.put(
                [flintmq.Message("T", b"now"), flintmq.Message("T", b"later", delay_level=3)]
            )
            store = broker.state.store
            for put in (plain, delayed):
                record = store.reader.message_at(put.commit_log_offset_bytes)
                assert record is not None
                assert record.topic == "T"
            assert SCHEDULE_TOPIC not in broker.state.topics
            assert SCHEDULE_TOPIC in broker.state.topics.forbidden_topics
            answer = await ask(broker, RequestCode.GET_ALL_DELAY_OFFSET)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    asyncio.run(live())


def test_a_slave_delivers_no_delayed_messages(tmp_path: Path) -> None:
    """What falls due meanwhile comes once the broker is a master again, and what was delivered before does not come twice."""
    clock = VirtualClock()
    with EmbeddedBroker(tmp_path, clock=clock) as broker:
        broker.put([flintmq.Message("T", b"1", delay_level=1), flintmq.Message("T", b"2", delay_level=3)])
        clock.advance("2s")
        assert [one.body for one in broker.messages("T")] == [b"1"]
        for expected in ([b"1", b"2"], [b"1", b"2", b"3"]):
            become_slave(broker)
            assert not is_timed(broker, "delayed messages")
            clock.advance("1m")
            assert [one.body for one in broker.messages("T")] == expected[:-1]
            become_master(broker)
            clock.advance("2s")
            assert sorted(one.body for one in broker.messages("T")) == expected
            broker.put([flintmq.Message("T", b"3", delay_level=1)] if len(expected) == 2 else [])


def test_a_demoted_master_replaces_its_delay_offsets_by_those_of_its_new_master(tmp_path: Path) -> None:
    """A level that its master has not delivered from begins at 0: what it delivered itself may be cut off its log."""
    with EmbeddedBroker(tmp_path, clock=VirtualClock()) as broker:
        schedule = broker.broker.state.service(DelayService)
        on_loop(broker, lambda _state: schedule.schedule.replace({"offsetTable": {1: 5, 3: 7}}))
        become_slave(broker)
        on_loop(broker, lambda _state: schedule.follow({"offsetTable": {3: 6}}))
        assert schedule.positions_for_slaves() == {"offsetTable": {3: 6}}
