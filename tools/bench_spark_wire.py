#!/usr/bin/env python3
"""Compares reading a broker's messages with Spark over the network with reading the broker's files.

    tools/bench_spark_wire.py WORK [--records 1000000] [--rounds 3] [--master 'local[2]'] [--stock]

Makes a store in WORK as tools/bench_spark.py does, and starts a FlintMQ broker with this store. The broker returns more
messages in an answer than by default, or with ``--stock`` the default number. Each round reads all messages once over the
network and once from the files, into Spark's noop sink. Then one line of JSON is printed, with medians of seconds and of CPU
seconds (Spark's and the broker's), and ``files/wire``: the time for the files divided by the time over the network.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_spark import FILE_BYTES, QUEUE_FILE_BYTES, QUEUES, THREE, TOPICS, make_store, measured, of_rounds

from flintmq.plugins.spark import session
from flintmq.programs.bench.machine import machine_facts
from flintmq.programs.cli.child import ServedChild
from flintmq.remoting.client.admin import AdminClient

ANSWERS = (
    "store.max_transfer_count_in_memory=8192",
    "store.max_transfer_count_in_disk=8192",
    "store.max_transfer_bytes_in_memory=4MiB",
    "store.max_transfer_bytes_in_disk=4MiB",
)
"""Settings with which a broker returns more messages in one pull than by default (32 messages from memory or 8 from disk)."""
PULL_BATCH = "2048"
OF_RECORDS = "topic,queueOffset,storeTimestamp"
"""Columns of the queries for which Spark reads the records of the log, because consume queues contain no store timestamp. A
broker also reads the records of the log to answer a pull. For a query of only the topic, queue id and queue offset
(:data:`THREE`), Spark reads the consume queues, and not the log."""


def broker(store: Path, *, stock: bool) -> ServedChild:
    settings = [
        f"store.commit_log_file_bytes={FILE_BYTES}",
        f"store.consume_queue_file_bytes={QUEUE_FILE_BYTES}",
        "dispatchers=consume_queue",
        *(() if stock else ANSWERS),
    ]
    words = [word for setting in settings for word in ("--set", setting)]
    return ServedChild(["--store", str(store), "--port", "0", "--namesrv-port", "0", *words], start_timeout_s=300)


async def create_topics(namesrv: str) -> None:
    """Create the topics of the store at its broker, because the store was made without a table of topics."""
    async with AdminClient(namesrv) as admin:
        for number in range(TOPICS):
            await admin.create_topic(f"topic{number}", queues=QUEUES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="a folder for the store; kept")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--stock", action="store_true", help="leave the size of answers at its default")
    arguments = parser.parse_args()
    store = arguments.work / "store"
    if not store.exists():
        make_store(store, arguments.records)
    with broker(store, stock=arguments.stock) as served:
        asyncio.run(create_topics(served.namesrv))
        spark = session(arguments.master, "bench", {"spark.log.level": "ERROR"})
        topics = ",".join(f"topic{number}" for number in range(TOPICS))

        def wire(**options: str) -> Any:
            found = spark.read.format("flintmq").option("nameServer", served.namesrv).option("subscribe", topics)
            return found.option("pullBatchSize", PULL_BATCH).options(**options).load()

        def files(**options: str) -> Any:
            return spark.read.format("flintmq").options(**options).load(str(store))

        def noop(frame: Any) -> Callable[[], object]:
            return lambda: frame.write.format("noop").mode("overwrite").save()

        assert wire().count() == files().count() == arguments.records
        runs = {
            "files_all": noop(files()),
            "wire_all": noop(wire()),
            "files_three": noop(files(columns=THREE)),
            "wire_three": noop(wire(columns=THREE)),
            "files_records": noop(files(columns=OF_RECORDS)),
            "wire_records": noop(wire(columns=OF_RECORDS)),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
        for number in range(arguments.rounds + 1):
            for name, run in runs.items():
                result = measured(run)
                if number:  # The first round is not counted, because it warms up Spark.
                    times[name].append(result)
        spark.stop()
    seconds = {name: round(statistics.median(one[0] for one in found), 3) for name, found in times.items()}
    cpu = {name: round(statistics.median(one[1] for one in found), 2) for name, found in times.items()}
    ratios = {
        **of_rounds("files/wire, all columns", times["files_all"], times["wire_all"]),
        **of_rounds("files/wire, three columns", times["files_three"], times["wire_three"]),
        **of_rounds("files/wire, three columns of records", times["files_records"], times["wire_records"]),
    }
    found = {"bench": "spark-wire", "stock": arguments.stock, "records": arguments.records, "seconds": seconds}
    found |= {"cpu_seconds": cpu, "ratios": ratios}
    print(json.dumps(found | {"machine": machine_facts()}))


if __name__ == "__main__":
    main()
