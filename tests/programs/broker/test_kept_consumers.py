"""After a restart consumers go on at once: the broker knows who shares the queues, what they want, and who holds a queue."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.io import fastjson
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.testing.clock import VirtualClock
from flintmq.testing.embedded import EmbeddedBroker
from flintmq.tests.integration.bare_wire import Wire

TOPIC = "Orders"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def broker(tmp_path: Path, clock: VirtualClock) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "store", clock=clock) as running:
        running.create_topic(TOPIC, 1)
        yield running


def heartbeat(
    wire: Wire, client_id: str, group: str = "billing", *, sub_string: str = "*", model: str = "CLUSTERING"
) -> None:
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{"topic": TOPIC, "subString": sub_string, "subVersion": 7}],
    }
    body = json.dumps({"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": []}).encode()
    assert wire.ask(RequestCode.HEART_BEAT, body=body).code == 0


def members(wire: Wire, group: str = "billing") -> list[str]:
    answer = wire.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    return sorted(fastjson.loads(answer.body)["consumerIdList"]) if answer.code == 0 else []


def pull_code(wire: Wire, sub_version: int = 7) -> int:
    """The answer to a pull as push consumers send it: without a subscription."""
    return wire.pull(TOPIC, consumerGroup="billing", sysFlag=0, subVersion=sub_version).code


def lock(wire: Wire, client_id: str) -> int:
    queue = {"brokerName": "broker-a", "queueId": 0, "topic": TOPIC}
    body = json.dumps({"clientId": client_id, "consumerGroup": "billing", "mqSet": [queue]}).encode()
    return len(fastjson.loads(wire.ask(RequestCode.LOCK_BATCH_MQ, body=body).body)["lockOKMQSet"])


def stopped(broker: EmbeddedBroker) -> None:
    broker.stop()


def wait_written(broker: EmbeddedBroker) -> None:
    """Wait for the thread that writes what the service has seen last."""
    service: Any = next(one for one in broker.broker.state.services() if type(one).__name__ == "KeptConsumers")

    async def written() -> None:
        if service._writing is not None:
            await asyncio.wait([service._writing])

    asyncio.run_coroutine_threadsafe(written(), broker.broker.state.loop).result(30)


def killed(broker: EmbeddedBroker) -> None:
    """What a killed broker leaves is what the file had before its stop."""
    wait_written(broker)
    file = Path(broker.broker.store_path) / "flint" / "consumers"
    copy = file.with_name("copy")
    shutil.copy(file, copy)
    broker.stop()
    copy.replace(file)


@pytest.mark.parametrize("end", [stopped, killed])
def test_a_consumer_can_pull_from_a_restarted_broker_before_the_consumer_sends_a_heartbeat(
    broker: EmbeddedBroker, clock: VirtualClock, end: Callable[[EmbeddedBroker], None]
) -> None:
    """Java's clients send the next heartbeat up to 30 s later; until then they pull, rebalance and renew their locks."""
    with closing(Wire(broker.address)) as one, closing(Wire(broker.address)) as two:
        heartbeat(one, "one")
        heartbeat(two, "two")
        assert lock(one, "one") == 1
        clock.advance("2s")
        end(broker)
    broker.start()
    with closing(Wire(broker.address)) as one, closing(Wire(broker.address)) as new:
        assert members(one) == ["one", "two"]
        assert pull_code(one) == ResponseCode.PULL_NOT_FOUND
        assert lock(new, "new") == 0
        assert lock(one, "one") == 1
        clock.advance("29s")
        heartbeat(one, "one")
        assert members(one) == ["one", "two"]
        assert one.notices == [], "nothing has changed"
        clock.advance("2s")
        assert members(one) == ["one"]
        assert [notice.code for notice in one.notices] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]


def test_consumer_registrations_survive_two_broker_restarts_in_succession(
    broker: EmbeddedBroker, clock: VirtualClock
) -> None:
    """And so are those that had no time to come back before it."""
    with closing(Wire(broker.address)) as one, closing(Wire(broker.address)) as two:
        heartbeat(one, "one")
        heartbeat(two, "two")
        broker.stop()
    broker.start()
    with closing(Wire(broker.address)) as one:
        heartbeat(one, "one")
        broker.stop()
    broker.start()
    with closing(Wire(broker.address)) as one:
        assert members(one) == ["one", "two"]
        clock.advance("31s")
        assert members(one) == []
        broker.stop()
    broker.start()
    with closing(Wire(broker.address)) as one:
        assert members(one) == []


def test_a_broker_restores_subscriptions_with_their_versions_after_a_restart(broker: EmbeddedBroker) -> None:
    """A pull names the version of its subscription: an older one would have it refused."""
    with closing(Wire(broker.address)) as one:
        heartbeat(one, "one", sub_string="red")
        broker.stop()
    broker.start()
    with closing(Wire(broker.address)) as one:
        assert pull_code(one, 7) == ResponseCode.PULL_NOT_FOUND
        assert pull_code(one, 8) == ResponseCode.SUBSCRIPTION_NOT_LATEST
    info = broker.broker.state.consumers.find("billing")
    assert info is not None
    found = info.find_subscription(TOPIC)
    assert found is not None
    assert found.sub_string == "red"


def test_an_offset_reset_is_refused_until_all_members_register_again_after_a_broker_restart(
    broker: EmbeddedBroker,
) -> None:
    """A reset that reaches only some members is undone by the next commit of the others."""
    with closing(Wire(broker.address)) as one, closing(Wire(broker.address)) as two:
        heartbeat(one, "one")
        heartbeat(two, "two")
        commit = {"consumerGroup": "billing", "topic": TOPIC, "queueId": 0, "commitOffset": 0}
        assert one.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 0
        broker.stop()
    broker.start()
    with closing(Wire(broker.address)) as one:
        listed = one.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "billing"})
        assert listed.code == ResponseCode.CONSUMER_NOT_ONLINE
        assert "2 members from before the broker's start have not registered again" in (listed.remark or "")
        assert (listed.remark or "").endswith("[group.returning]")
        heartbeat(one, "one")
        reset = {"topic": TOPIC, "group": "billing", "timestamp": "-1", "isForce": "true"}
        refused = one.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "[group.returning;" in (refused.remark or "")
        heartbeat(one, "two")
        assert one.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset).code == 0


@pytest.mark.parametrize("content", [b"", bytes(500), b'{"version":1,"groups":1}\n', b"x" * (17 << 20)])
def test_a_damaged_file_of_consumer_registrations_is_reported_and_ignored(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    """The consumers register again by themselves."""
    with closing(Wire(broker.address)) as one:
        heartbeat(one, "one")
        file = Path(broker.broker.store_path) / "flint" / "consumers"
        broker.stop()
    assert file.exists()
    file.write_bytes(content)
    with caplog.at_level(logging.WARNING, "flintmq.broker"):
        broker.start()
    assert "the registrations are not known again" in caplog.text
    with closing(Wire(broker.address)) as one:
        assert members(one) == []
        heartbeat(one, "one")
        broker.stop()
    broker.start()
    with closing(Wire(broker.address)) as one:
        assert members(one) == ["one"]


def test_the_file_of_consumer_registrations_is_written_only_after_a_change(
    broker: EmbeddedBroker, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heartbeats that say what is known cost the disk nothing; a disk that refuses is told once, and tried again."""
    service: Any = next(one for one in broker.broker.state.services() if type(one).__name__ == "KeptConsumers")
    written: list[int] = []
    save = service._save

    def counted() -> int:
        written.append(1)
        left_out: int = save()
        return left_out

    monkeypatch.setattr(service, "_save", counted)
    with closing(Wire(broker.address)) as one:
        heartbeat(one, "one")
        clock.advance("5s")
        assert len(written) == 1
        heartbeat(one, "one")
        clock.advance("5s")
        assert len(written) == 1
        heartbeat(one, "one", sub_string="red")
        heartbeat(one, "one", group="other")
        clock.advance("5s")
        assert len(written) == 2


def test_failed_writes_of_the_file_of_consumer_registrations_are_logged_once(
    broker: EmbeddedBroker, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk must not fill the log, too."""
    service: Any = next(one for one in broker.broker.state.services() if type(one).__name__ == "KeptConsumers")

    def refuse() -> int:
        raise OSError(28, "No space left on device")

    with closing(Wire(broker.address)) as one, caplog.at_level(logging.ERROR, "flintmq.broker"):
        with monkeypatch.context() as full:
            full.setattr(service, "_save", refuse)
            heartbeat(one, "one")
            clock.advance("30s")
            wait_written(broker)
        assert caplog.text.count("the registrations of consumers are not written") == 1
        clock.advance("10s")
        wait_written(broker)
        assert (Path(broker.broker.store_path) / "flint" / "consumers").exists()
