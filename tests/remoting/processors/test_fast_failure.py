"""Flow control refuses only who has waited, never by default, and says where the time went."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import attrs
import pytest

import flintmq
from flintmq.config.sections.models import AdmissionSection, BrokerConfig
from flintmq.core.record.properties import properties_to_string
from flintmq.core.testing.clock import ManualClock
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.processors.fast_failure import FastFailure
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request
from flintmq.remoting.wire.headers_message import SendMessageRequestHeaderV2

ON = AdmissionSection(fast_failure=True, send_wait_ms=200, page_cache_busy_ms=1000)


def requests(count: int) -> list[Any]:
    return [object() for _ in range(count)]


def test_off_by_default() -> None:
    assert not BrokerConfig().admission.fast_failure


def test_who_waited_is_refused_and_told_where() -> None:
    control = FastFailure()
    control.appended(1.0, 0.003)
    control.arrived(1.05, 2)
    control.arrived(1.30, 1)
    pending = requests(3)
    refused = control.overdue(pending, 1.363, ON)
    assert [who for who, _ in refused] == pending[:2]
    remark = refused[0][1].remark
    assert refused[0][1].code == 2
    assert remark.startswith(
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 313ms, size of queue: 3 ["
    )
    assert "admission.send_wait; measured 313 ms in the event loop between its read and its append" in remark
    assert "the append before took 3 ms; see admission.send_wait_ms (waitTimeMillsInSendQueue)]" in remark
    assert control.overdue([], 9.0, ON) == [], "each is judged once"


def test_who_waited_for_an_append_is_refused() -> None:
    control = FastFailure()
    control.appended(10.0, 1.2)
    control.arrived(10.01, 1)
    ((_, error),) = control.overdue(requests(1), 10.02, ON)
    assert error.remark.startswith(
        "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 1210ms"
    )
    assert "up to 1200 ms in its socket" in error.remark
    assert "osPageCacheBusyTimeOutMills" in error.remark
    control.arrived(10.5, 1)
    assert control.overdue(requests(1), 10.5, ON) == [], "who came later has not waited"


def test_who_is_left_for_the_next_turn_is_judged_then() -> None:
    """A turn takes no more than so many bytes; what a read brought may be parted by that."""
    control = FastFailure()
    control.arrived(1.0, 3)
    first, second, third = requests(3)
    assert [request for request, _ in control.overdue([first, second], 1.01, ON, left=1)] == []
    assert [request for request, _ in control.overdue([third], 9.0, ON)] == [third]


def test_switched_on_between_a_read_and_its_append() -> None:
    """Of whom nothing is known nobody is refused."""
    control = FastFailure()
    control.arrived(1.0, 1)
    assert control.overdue(requests(2), 9.0, ON) == []


class Jumping(ManualClock):
    """A clock that goes on a second whenever it is asked, once that is switched on: a loop that is always late."""

    jumps = False

    def monotonic_s(self) -> float:
        if self.jumps:
            self.advance_ms(1000)
        return super().monotonic_s()


async def _send(tmp_path: Path, fast_failure: bool) -> tuple[int, str]:
    clock = Jumping()
    settings = [f"store.path={tmp_path}", "listen.port=0", "listen.vip=false", "store.commit_log_file_bytes=1MiB"]
    loaded = flintmq.load_config(None, settings, {})
    config = attrs.evolve(loaded.config, admission=attrs.evolve(ON, fast_failure=fast_failure))
    async with flintmq.Broker(config, clock=clock) as broker:
        await broker.put([flintmq.Message("T", b"first")])
        client = RemotingClient()
        header = SendMessageRequestHeaderV2(
            producer_group="G",
            topic="T",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp_ms=1,
            flag=0,
            properties=properties_to_string({"UNIQ_KEY": "A" * 32}),
        )
        try:
            clock.jumps = True
            command = request(RequestCode.SEND_MESSAGE_V2, header, b"body")
            answer = await client.invoke(broker.address, command, 5_000)
            return answer.code, answer.remark or ""
        finally:
            clock.jumps = False
            await client.close()
            broker.state.dispatch()
            stored = sum(broker.state.store.reader.max_queue_offset("T", queue) for queue in range(4))
            assert stored == (1 if fast_failure else 2)


@pytest.mark.parametrize("fast_failure", [True, False])
def test_in_a_broker(tmp_path: Path, fast_failure: bool) -> None:
    """A refused send is answered and not stored; without the setting the same send is stored, however late."""
    code, remark = asyncio.run(_send(tmp_path, fast_failure))
    assert code == (2 if fast_failure else 0)
    assert ("_CLEAN_QUEUE]broker busy" in remark) is fast_failure
