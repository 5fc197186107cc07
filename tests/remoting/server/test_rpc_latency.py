"""Each request that is answered is counted once, with its code and that of its answer, by whatever way its answer came."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flintmq import Broker
from flintmq.config import load_config
from flintmq.core.broker.batch_figures import NOTES_MAX
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.programs.bench.frames import CONSUMER_GROUP, SendFrame
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.server.request_gate import ServerHooks
from flintmq.remoting.server.rpc_latency import BOUNDS_MS, KINDS_MAX, OTHER, RpcLatency
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.remoting.wire.command import RemotingCommand, request
from flintmq.remoting.wire.frame import FrameDecoder
from flintmq.remoting.wire.headers_message import PullMessageRequestHeader, SendMessageRequestHeaderV2

TOPIC = "Orders"
MAY_BE_HELD = 2
PULL, SEND, BATCH = RequestCode.PULL_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


def counted(broker: Broker) -> dict[tuple[int, int, bool, bool], int]:
    latency = broker.server.latency
    assert latency is not None
    return {kind: sum(histogram.counts) for kind, histogram in latency.by_kind().items()}


def live(root: Path, work: Callable[[Broker, RemotingClient], Any], *settings: str) -> None:
    base = (f"store.path={root}", "listen.port=0", "listen.vip=false")

    async def run() -> None:
        async with Broker(load_config(None, [*base, *settings], {})) as broker, RemotingClient() as client:
            assert broker.server.latency is None, "nothing is counted while nothing reads it"
            await client.invoke(broker.address, send(), 10_000)
            broker.api.server.measure(RpcLatency(broker.state.stats.found_pulls))
            async with asyncio.timeout(20):
                await work(broker, client)

    asyncio.run(run())


def send(body: bytes = b"x", queue_id: int = 0) -> RemotingCommand:
    header = SendMessageRequestHeaderV2(
        producer_group="shop",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp_ms=1,
        flag=0,
    )
    return request(SEND, header, body)


def pull(at: int, hold_ms: int = 0, topic: str = TOPIC) -> RemotingCommand:
    header = PullMessageRequestHeader(
        consumer_group=CONSUMER_GROUP,
        topic=topic,
        queue_id=0,
        queue_offset=at,
        max_msg_nums=32,
        sys_flag=4 | (MAY_BE_HELD if hold_ms else 0),
        commit_consumer_offset=0,
        suspend_timeout_ms=hold_ms,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    return request(PULL, header)


@pytest.mark.parametrize("setting", ["flush.strategy=flush_real_time", "flush.strategy=group_commit", "hooks"])
def test_the_latency_of_every_answer_is_counted_once(tmp_path: Path, setting: str) -> None:
    """Sends that share an append, those that wait for the disk, refusals, pulls, and processors that take their time."""

    async def work(broker: Broker, client: RemotingClient) -> None:
        if setting == "hooks":
            broker.server.hooks = ServerHooks(after=(lambda request, response: None,))
            broker.state.server.answers_as_bytes = False
        asked = [
            *(send() for _ in range(50)),
            send(b""),
            send(queue_id=99),
            pull(0),
            pull(0, topic="missing"),
            request(RequestCode.GET_BROKER_RUNTIME_INFO, {}),
            request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": TOPIC}),
            request(9_999, {}),
        ]
        answers = await asyncio.gather(*(client.invoke(broker.address, one, 10_000) for one in asked))
        told = Counter((one.code, answer.code) for one, answer in zip(asked, answers, strict=True))
        assert len(told) > 6
        assert counted(broker) == {(*codes, False, False): count for codes, count in told.items()}

    live(tmp_path, work, *([] if setting == "hooks" else [setting]))


def test_each_batch_send_is_counted_as_one_request(tmp_path: Path) -> None:
    """Large ones are looked into in several turns, which are part of their time."""

    async def work(broker: Broker, client: RemotingClient) -> None:
        queue = MessageQueue(broker.config.broker.name, 0, TOPIC)
        reader, writer = await asyncio.open_connection(*broker.address.rsplit(":", 1))
        frames = [SendFrame(number, queue, b"." * 40_000, 30).next(b"1700000000000", 0) for number in range(3)]
        writer.write(b"".join(map(bytes, frames)))
        decoder, answers = FrameDecoder(), 0
        while answers < len(frames):
            answers += len(decoder.feed(await reader.read(65_536)))
        writer.close()
        assert counted(broker) == {(BATCH, 0, False, False): 3}

    live(tmp_path, work)


def test_the_latency_of_a_held_pull_includes_its_waiting_time(tmp_path: Path) -> None:
    """Dashboards leave these out by ``is_long_polling``, or every quiet topic would look slow."""

    async def work(broker: Broker, client: RemotingClient) -> None:
        held = asyncio.create_task(client.invoke(broker.address, pull(1, hold_ms=10_000), 10_000))
        while not len(broker.state.outlet.held):  # noqa: ASYNC110 - other tasks of this loop are waited for; likewise below
            await asyncio.sleep(0)
        assert not counted(broker), "it is not answered yet"
        latency = broker.server.latency
        assert latency is not None
        begin_s = broker.state.clock.monotonic_s()
        while broker.state.clock.monotonic_s() < begin_s + 0.02:  # noqa: ASYNC110
            await asyncio.sleep(0)
        # Another request of the same connection comes in between: the hold began before it.
        await client.invoke(broker.address, send(), 10_000)
        assert (await held).code == 0
        assert counted(broker) == {(SEND, 0, False, False): 1, (PULL, 0, True, False): 1}
        assert latency.by_kind()[PULL, 0, True, False].total >= 20
        assert latency.by_kind()[SEND, 0, False, False].total < latency.by_kind()[PULL, 0, True, False].total

    live(tmp_path, work)


@pytest.mark.parametrize("setting", ["flush.strategy=flush_real_time", "flush.strategy=group_commit"])
def test_latencies_of_oneway_requests_are_counted_separately(tmp_path: Path, setting: str) -> None:
    """Nobody waits for their answer."""

    async def work(broker: Broker, client: RemotingClient) -> None:
        await client.invoke(broker.address, pull(0), 10_000)
        await client.invoke_oneway(broker.address, send())
        await client.invoke_oneway(broker.address, pull(0))
        while not {(SEND, 0, False, True), (PULL, 0, False, True)} <= counted(broker).keys():  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert counted(broker) == dict.fromkeys(
            [(PULL, 0, False, False), (PULL, 0, False, True), (SEND, 0, False, True)], 1
        )

    live(tmp_path, work, setting)


def test_pulls_on_the_fast_path_and_other_pulls_are_each_counted_once_in_the_latency_histogram() -> None:
    """The broker's statistics count them; those that are counted here, and those of before, are not counted twice."""
    found = [(10, 1.0), (15, 1.0012), (15, 1.0012), (16, 9.0)]
    latency = RpcLatency(iter(found).__next__)
    latency.add(PULL, 0, 0.002)
    for told, total_ms in ([4, 1], 2 + 4 * 0.24), ([4, 1], 2 + 4 * 0.24), ([5, 1], 3 + 4 * 0.24):
        histogram = latency.by_kind()[PULL, 0, False, False]
        assert (histogram.counts[:2], histogram.total) == (told, pytest.approx(total_ms))


def test_latency_histograms_have_rocketmqs_bucket_bounds_and_a_limited_number_of_request_codes() -> None:
    """A client that asks with ever new codes must not fill the answer to a scrape."""
    latency = RpcLatency(lambda: (0, 0.0))
    for took_ms in (0.5, 1.0, 2.9, 8, 99, 5_000):
        latency.add(10, 0, took_ms / 1000)
    latency.add(10, 0, 0.004, 7)
    histogram = latency.by_kind()[10, 0, False, False]
    assert histogram.bounds == BOUNDS_MS
    assert histogram.counts == [2, 1, 7, 0, 1, 1, 0, 0, 0, 1]
    assert histogram.total == pytest.approx(0.5 + 1 + 2.9 + 8 + 99 + 5_000 + 28)
    for code in range(1_000):
        latency.add(code, int(ResponseCode.SYSTEM_ERROR), 0.0)
    assert len(latency.by_kind()) == KINDS_MAX + 1
    assert sum(latency.by_kind()[OTHER, int(ResponseCode.SYSTEM_ERROR), False, False].counts) == 1_000 - KINDS_MAX + 1


def test_latency_is_measured_only_if_metrics_are_enabled(tmp_path: Path) -> None:
    """The measurement costs time at each request, which a broker without metrics must not pay."""
    pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")
    base = (f"store.path={tmp_path}", "listen.port=0", "listen.vip=false")
    for is_on in (False, True):
        settings = [*base, f"metrics.enable={'true' if is_on else 'false'}"]
        with Broker(load_config(None, settings, {})) as broker:
            assert (broker.server.latency is not None) is is_on


def test_each_buffered_latency_is_counted_once_and_the_size_of_the_buffer_is_limited() -> None:
    """They are counted when somebody reads them, or when they are many."""
    latency = RpcLatency(lambda: (0, 0.0))
    for _ in range(3 * NOTES_MAX):
        latency.note(int(SEND), 0.004, 64)
        latency.note(int(BATCH), 0.0005, 1)
    assert len(latency._notes) < NOTES_MAX
    for _ in range(2):
        kinds = latency.by_kind()
        assert kinds[int(SEND), 0, False, False].counts[2] == 3 * NOTES_MAX * 64
        batches = kinds[int(BATCH), 0, False, False]
        assert (batches.counts[0], batches.total) == (3 * NOTES_MAX, pytest.approx(1.5 * NOTES_MAX))
