"""What one operation costs beside many names: ``python tests/benchmarks/names_cost.py [--names 100 10000 100000] [--json]``.

A broker and a name server in this process, in turn filled with topics, groups, offsets, counters and key values by the hundred
and by the hundred thousand. For each number of names: the processor time that the event loop takes for an operation of
administration, while nothing else goes on and the tables are written as ever; and for how long it worked at a stretch while
others would have waited, also while all topics, groups or offsets were asked for. All of it is processor time, which others on
the machine do not change.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

import flintmq
from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.route.kv_config import ORDER_TOPIC_CONFIG
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import RemotingCommand, request
from flintmq.remoting.wire.headers_admin import CreateTopicRequestHeader

NAMES = (100, 10_000, 100_000)
_FILLED_AT_ONCE = 100
_TICK_S = 0.001
WHOLE_TABLES = {
    "all topics (21)": RequestCode.GET_ALL_TOPIC_CONFIG,
    "all groups (201)": RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    "all offsets (43)": RequestCode.GET_ALL_CONSUMER_OFFSET,
}


@attrs.frozen
class Cost:
    """What an operation took beside some number of names."""

    cpu_ms: float
    """Processor time of the loop's thread: the median of the operations."""
    blocked_ms: float
    """Processor time of the loop's thread from one look at it to the next, which is due after a millisecond: the median."""
    blocked_max_ms: float
    """The most of it."""


def main() -> None:
    """Measure, and print a row for each operation and number of names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--names", type=int, nargs="+", default=NAMES, metavar="N")
    parser.add_argument("--rounds", type=int, default=100, metavar="N")
    parser.add_argument("--json", action="store_true", help="print an object a row instead of a table")
    options = parser.parse_args()
    for names, costs in measure(sorted(options.names), options.rounds).items():
        for name, cost in costs.items():
            if options.json:
                print(json.dumps({"names": names, "operation": name} | attrs.asdict(cost)))
            else:
                print(
                    f"{names:8,} {name:20}{cost.cpu_ms:9.3f} ms of processor time;"
                    f" at a stretch {cost.blocked_ms:.3f} ms, at most {cost.blocked_max_ms:.1f}"
                )


def measure(numbers: list[int], rounds: int) -> dict[int, dict[str, Cost]]:
    """Return for each number of names, which may only grow, what each operation costs."""
    with tempfile.TemporaryDirectory() as folder:
        overrides = [
            f"store.path={folder}/store",
            "listen.port=0",
            "store.commit_log_file_bytes=16MiB",
            "topics.count_max=1000000",
            "groups.count_max=1000000",
            "offsets.flush_interval_ms=3600000",
            f"nameserver.kv_path={folder}/kvConfig.json",
            "nameserver.port=0",
        ]
        config, costs, before = flintmq.load_config(overrides=overrides), {}, 0
        with flintmq.NameServer(config) as names, flintmq.Broker(config) as broker:
            at_broker, at_names = Watch(broker), Watch(names)
            for number in numbers:
                broker.call(lambda before=before, number=number: _fill_broker(broker, before, number))
                names.call(lambda before=before, number=number: _fill_names(names, before, number))
                before = number
                costs[number] = asyncio.run(_costs(at_broker, at_names, rounds))
    return costs


class Watch:
    """Sees what the loop of a server does, from another thread."""

    def __init__(self, server: flintmq.Broker | flintmq.NameServer) -> None:
        self.server = server
        self.address = server.state.advertised_address if isinstance(server, flintmq.Broker) else server.address
        self._clock = time.pthread_getcpuclockid(server.call(_ident))
        self._blocked_ms: list[float] = []
        self._looking: asyncio.Task[None] | None = None

    def cpu_ms(self) -> float:
        """Return the processor time of the loop's thread."""
        return time.clock_gettime(self._clock) * 1000

    def begin(self) -> None:
        """Begin to look how long it works at a stretch."""

        async def look() -> None:
            while True:
                began_s = time.thread_time()
                await asyncio.sleep(_TICK_S)
                self._blocked_ms.append((time.thread_time() - began_s) * 1000)

        async def begin() -> None:
            self._blocked_ms = [0.0]
            self._looking = asyncio.get_running_loop().create_task(look())

        self.server.call(begin)

    def end(self) -> list[float]:
        """End it, and return for how many milliseconds it did, look by look."""

        async def end() -> None:
            assert self._looking is not None
            self._looking.cancel()

        self.server.call(end)
        return self._blocked_ms


async def _ident() -> int:
    return threading.get_ident()


async def _costs(broker: Watch, names: Watch, rounds: int) -> dict[str, Cost]:
    async with RemotingClient(max_frame_bytes=1 << 30) as client:
        operations = _operations(client, broker.address, names.address)
        costs = {
            name: await _cost(work, names if name.startswith("value") else broker, rounds)
            for name, work in operations.items()
        }
        for name, code in WHOLE_TABLES.items():
            costs[name] = await _cost(_asked(client, broker.address, code), broker, 5)
    return costs


async def _fill_broker(broker: flintmq.Broker, before: int, number: int) -> None:
    """Make topics, each with a group that reads it, and with counters as if it had been sent to and read."""
    state = broker.state
    for one in range(before, number):
        topic, group = f"Beside{one}", f"Group{one}"
        state.topics.put(TopicConfig.with_queues(topic, 1))
        state.groups.put(SubscriptionGroupConfig(group_name=group))
        state.offsets.put(topic, group, 0, 1)
        state.stats.table.add("TOPIC_PUT_NUMS", topic)
        state.stats.handed_out(topic, group, 0, 1, 100)
        if one % _FILLED_AT_ONCE == 0:
            state.stats.sample()
            await asyncio.sleep(0)
    await state.topics.compact()
    await state.groups.compact()
    gc.collect()


async def _fill_names(names: flintmq.NameServer, before: int, number: int) -> None:
    for one in range(before, number):
        names.kv.put("beside", f"Beside{one}", "broker-a:4")
        if one % _FILLED_AT_ONCE == 0:
            await asyncio.sleep(0)
    await names.kv.compact()


Operation = Callable[[int], Awaitable[object]]


def _operations(client: RemotingClient, broker: str, name_server: str) -> dict[str, Operation]:
    """Return the operations of administration by name; each is given a number of its own."""

    async def ask(address: str, code: RequestCode, header: Any, body: bytes = b"") -> None:
        _succeeded(await client.invoke(address, request(code, header, body), 60_000))

    def topic(number: int) -> Awaitable[object]:
        header = CreateTopicRequestHeader(
            topic=f"Made{number}",
            default_topic="TBW102",
            read_queue_nums=4,
            write_queue_nums=4,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
        )
        return ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    def group(number: int) -> Awaitable[object]:
        body = json.dumps({"groupName": f"MadeGroup{number}"}).encode()
        return ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)

    def no_group(number: int) -> Awaitable[object]:
        header = {"groupName": f"MadeGroup{number}", "removeOffset": "true"}
        return ask(broker, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    def value(number: int) -> Awaitable[object]:
        header = {"namespace": ORDER_TOPIC_CONFIG, "key": f"Made{number}", "value": "a:4"}
        return ask(name_server, RequestCode.PUT_KV_CONFIG, header)

    def no_value(number: int) -> Awaitable[object]:
        header = {"namespace": ORDER_TOPIC_CONFIG, "key": f"Made{number}"}
        return ask(name_server, RequestCode.DELETE_KV_CONFIG, header)

    return {
        "topic made (17)": topic,
        "topic changed (17)": topic,
        "topic deleted (215)": lambda number: ask(
            broker, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": f"Made{number}"}
        ),
        "group made (200)": group,
        "group changed (200)": group,
        "group deleted (207)": no_group,
        "value set (100)": value,
        "value deleted (102)": no_value,
    }


def _asked(client: RemotingClient, address: str, code: RequestCode) -> Operation:
    async def ask(_number: int) -> None:
        _succeeded(await client.invoke(address, request(code), 60_000))

    return ask


def _succeeded(answer: RemotingCommand) -> None:
    if answer.code != 0:
        raise SystemExit(f"refused with {answer.code}: {answer.remark}")


async def _cost(work: Operation, watch: Watch, rounds: int) -> Cost:
    spent_ms = []
    watch.begin()
    for number in range(rounds):
        before_ms = watch.cpu_ms()
        await work(number)
        spent_ms.append(watch.cpu_ms() - before_ms)
    blocked_ms = watch.end()
    return Cost(statistics.median(spent_ms), statistics.median(blocked_ms), max(blocked_ms))


if __name__ == "__main__":
    main()
