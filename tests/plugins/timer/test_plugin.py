"""Timers are one folder: a broker has them by its plugin, and runs without it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import flintmq
from flintmq.config import BrokerConfig
from flintmq.config.rocketmq.system_topics import TIMER_TOPIC
from flintmq.config.sections.models import ListenSection, StoreSection
from flintmq.config.sections.service import DelaySection
from flintmq.core.broker.readers import DELAYED_DELIVERY
from flintmq.plugins.timer.plugin import TimerService
from flintmq.plugins.timer.timer_service import TIMER_POSITIONS
from flintmq.testing.clock import VirtualClock
from flintmq.testing.embedded import EmbeddedBroker
from flintmq.tests.support.roles import become_master, become_slave, is_timed, on_loop


@pytest.mark.parametrize(
    ("disabled", "enabled", "lies_in"), [((), True, TIMER_TOPIC), ((), False, "T"), (("timer",), True, "T")]
)
def test_a_timer_message_is_stored_in_the_timer_topic_only_if_timers_are_enabled(
    tmp_path: Path, disabled: tuple[str, ...], enabled: bool, lies_in: str
) -> None:
    """RocketMQ 4.9 knows no such property: without the feature the message is stored at its topic, at once."""
    config = BrokerConfig(
        listen=ListenSection(host="127.0.0.1", port=0),
        store=StoreSection(path=str(tmp_path)),
        delay=DelaySection(timer_enable=enabled),
        disabled_plugins=disabled,
    )

    async def live() -> None:
        async with flintmq.Broker(config) as broker:
            message = flintmq.Message("T", b"later", properties={"TIMER_DELAY_MS": "60000"})
            for put in await broker.put([message]):
                record = broker.state.store.reader.message_at(put.commit_log_offset_bytes)
                assert record is not None
                assert record.topic == lies_in
            figures = broker.api.figures.texts()
            assert ("timerCongestNum" in figures) == (lies_in == TIMER_TOPIC)

    asyncio.run(live())


def test_a_slave_delivers_no_timer_messages(tmp_path: Path) -> None:
    """What falls due meanwhile comes once the broker is a master again, and what was delivered before does not come twice."""
    clock = VirtualClock()
    with EmbeddedBroker(tmp_path, clock=clock) as broker:
        broker.put([later(b"1", 1_000), later(b"2", 30_000), later(b"3", 3_600_000)])
        clock.advance("2s")
        assert bodies(broker) == [b"1"]
        become_slave(broker)
        assert not is_timed(broker, "timers")
        clock.advance("1m")
        assert bodies(broker) == [b"1"]
        assert on_loop(broker, lambda state: state.service(TimerService).runtime_info()) == {}
        become_master(broker)
        clock.advance("1s")
        assert bodies(broker) == [b"1", b"2"]
        broker.put([later(b"4", 1_000)])
        become_slave(broker)
        become_master(broker)
        clock.advance("2h")
        assert bodies(broker) == [b"1", b"2", b"3", b"4"]


def test_timer_messages_delivered_before_a_demotion_are_not_delivered_again_after_a_restart(tmp_path: Path) -> None:
    """The slave writes the positions of the former master until it has those of a new one."""
    clock = VirtualClock()
    with EmbeddedBroker(tmp_path, clock=clock) as broker:
        broker.put([later(b"1", 1_000), later(b"2", 3_600_000)])
        clock.advance("2s")
        become_slave(broker)
        broker.stop()
        broker.start()
        clock.advance("2h")
        assert bodies(broker) == [b"1", b"2"]


def test_a_promoted_slave_continues_timer_delivery_at_the_position_of_its_former_master(tmp_path: Path) -> None:
    """Retention asks for the first message that is still needed; the positions outlive a restart of the slave, too."""
    clock = VirtualClock()
    with EmbeddedBroker(tmp_path, clock=clock) as broker:
        broker.put([later(b"%d" % number, 30_000) for number in range(4)])
        clock.advance("1s")
        become_slave(broker)
        told = {"readQueueOffset": 4, "lowQueueOffset": 2, "doneDueMs": clock.now_ms() + 29_000, "doneQueueOffset": 2}
        on_loop(broker, lambda state: state.service(TimerService).follow({TIMER_POSITIONS: told}))
        assert on_loop(broker, lambda state: state.readers.query(TIMER_TOPIC, DELAYED_DELIVERY, 0)) == 2
        clock.advance("1m")
        become_master(broker)
        clock.advance("1s")
        assert bodies(broker) == [b"2", b"3"]
        assert on_loop(broker, lambda state: state.readers.query(TIMER_TOPIC, DELAYED_DELIVERY, 0)) == 4


def later(body: bytes, delay_ms: int) -> flintmq.Message:
    """A message that is delivered after so many milliseconds."""
    return flintmq.Message("T", body, properties={"TIMER_DELAY_MS": str(delay_ms)})


def bodies(broker: EmbeddedBroker) -> list[bytes]:
    """What was delivered, in the order of the bodies."""
    return sorted(one.body for one in broker.messages("T"))
