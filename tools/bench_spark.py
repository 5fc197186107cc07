#!/usr/bin/env python3
"""Measures reading a store with Spark against Spark's own scan of the same rows in Parquet.

    tools/bench_spark.py WORK [--records 2000000] [--rounds 3] [--master 'local[2]']

Makes the store of a stopped broker in WORK (bodies of 128 bytes, 8 topics of 4 queues, some 100 bytes of properties, log files
of 128 MiB), and a Parquet copy of it by Spark (snappy). Each round runs every case once, one after the other. Then one line of
JSON is printed, with medians of seconds and of CPU seconds (Java and Python workers together), and of the rounds' ratios:
`parquet / flintmq` for scans (above 1: FlintMQ is faster), `count() / count() of one column`, `one topic / all` for the read of
one topic of the eight. Rows go to Spark's noop sink: every column is computed and nothing is written.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from flintmq.core.record.record import MAGIC_V1, encode_blank
from flintmq.plugins.spark import session
from flintmq.programs.bench.machine import machine_facts

TOPICS, QUEUES, BODY = 8, 4, 128
FILE_BYTES = 128 * 1024 * 1024
QUEUE_FILE_BYTES = 6_000_000
PROPERTIES = (
    b"UNIQ_KEY\x01%032d\x02TAGS\x01Tag0\x02KEYS\x01key000000000\x02CLUSTER\x01DefaultCluster\x02WAIT\x01true" % 0
)
THREE = "topic,queueId,queueOffset"
UNIT = np.dtype([("position", ">i8"), ("size", ">i4"), ("tags", ">i8")])


def record_type() -> np.dtype[Any]:
    """Return the numpy type of the log's records. All records of the store have the same layout, so an array can hold a million
    records."""
    key_at, tag_at, keys_at = PROPERTIES.index(b"0"), PROPERTIES.index(b"Tag") + 3, PROPERTIES.index(b"key0") + 3
    return np.dtype(
        [
            ("size", ">i4"), ("magic", ">u4"), ("crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"), ("queue_offset", ">i8"),
            ("physical", ">i8"), ("sys_flag", ">i4"), ("born", ">i8"), ("born_host", "S8"), ("stored", ">i8"),
            ("store_host", "S8"), ("times", ">i4"), ("prepared", ">i8"), ("body_length", ">i4"), ("body", f"V{BODY}"),
            ("topic_length", "u1"), ("topic", "S6"), ("properties_length", ">u2"),
            ("p0", f"S{key_at}"), ("uniq_key", "S32"), ("p1", f"S{tag_at - key_at - 32}"), ("tag", "S1"),
            ("p2", f"S{keys_at - tag_at - 1}"), ("key", "S9"), ("p3", f"S{len(PROPERTIES) - keys_at - 9}"),
        ]
    )  # fmt: skip


def digits(numbers: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    """Return an array of numbers as texts of a fixed width, with leading zeros."""
    powers = 10 ** np.arange(min(width, 18) - 1, -1, -1, dtype=np.int64)
    text = np.full((len(numbers), width), ord("0"), np.uint8)
    text[:, width - len(powers) :] += (numbers[:, None] // powers % 10).astype(np.uint8)
    return text.view(f"S{width}").ravel()


def make_store(root: Path, records: int) -> None:
    """Make the log files and the consume queues of a store, as a stopped broker leaves them."""
    kind = record_type()
    size = kind.itemsize
    per_file = (FILE_BYTES - 8) // size
    (root / "commitlog").mkdir(parents=True)
    for first in range(0, records, per_file):
        number = np.arange(first, min(records, first + per_file), dtype=np.int64)
        start = first // per_file * FILE_BYTES
        log = np.zeros(len(number), kind)
        log["size"], log["magic"], log["flag"] = size, MAGIC_V1, 0
        log["queue_id"] = number // TOPICS % QUEUES
        log["queue_offset"] = number // (TOPICS * QUEUES)
        log["physical"] = start + (number - first) * size
        log["born"] = log["stored"] = 1_700_000_000_000 + number // 100
        log["born_host"] = log["store_host"] = b"\x7f\0\0\x01\0\0\x2a\x9f"
        body = np.random.default_rng(first).integers(0, 256, (len(number), BODY), np.uint8)
        log["body"] = body.view(f"V{BODY}").ravel()
        log["body_length"] = BODY
        log["crc"] = [zlib.crc32(one) & 0x7FFFFFFF for one in body]
        log["topic_length"], log["topic"] = 6, np.char.add(b"topic", (number % TOPICS).astype("S1"))
        log["properties_length"] = len(PROPERTIES)
        log["uniq_key"], log["tag"], log["key"] = digits(number, 32), (number % 4).astype("S1"), digits(number, 9)
        at = 0
        for name, width in (("p0", "uniq_key"), ("p1", "tag"), ("p2", "key"), ("p3", None)):
            length = kind[name].itemsize
            log[name] = PROPERTIES[at : at + length]
            at += length + (kind[width].itemsize if width else 0)
        with (root / "commitlog" / f"{start:020d}").open("wb") as file:
            log.tofile(file)
            left = FILE_BYTES - len(number) * size
            file.write(encode_blank(left) if len(number) == per_file else bytes(8))
            file.truncate(FILE_BYTES)
        add_units(root, log)
    for queue in (root / "consumequeue").glob("*/*"):
        split_queue(queue)


def add_units(root: Path, log: np.ndarray[Any, Any]) -> None:
    """Append the consume queue unit of each record to the file ``all`` of the record's queue."""
    for topic in range(TOPICS):
        for queue_id in range(QUEUES):
            mine = log[(log["topic"] == b"topic%d" % topic) & (log["queue_id"] == queue_id)]
            units = np.zeros(len(mine), UNIT)
            units["position"], units["size"] = mine["physical"], mine["size"]
            # A unit of a consume queue contains the hash of the message's tag.
            for number in range(4):
                units["tags"][mine["tag"] == b"%d" % number] = hash_of(f"Tag{number}")
            folder = root / "consumequeue" / f"topic{topic}" / str(queue_id)
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "all").open("ab") as file:
                units.tofile(file)


def split_queue(folder: Path) -> None:
    """Split a queue's file ``all`` into queue files of the usual size. The last file is filled with zeros after its units."""
    raw = (folder / "all").read_bytes()
    (folder / "all").unlink()
    for start in range(0, len(raw), QUEUE_FILE_BYTES):
        (folder / f"{start:020d}").write_bytes(raw[start : start + QUEUE_FILE_BYTES].ljust(QUEUE_FILE_BYTES, b"\0"))


def hash_of(tag: str) -> int:
    from flintmq.core.record.java_hash import tags_hash

    return tags_hash(tag)


def tree_cpu_s() -> float:
    """Return the CPU seconds of all descendants of this process, including descendants that have ended."""
    tick = os.sysconf("SC_CLK_TCK")
    parents, used = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = sum(map(int, fields[11:15])) / tick
    total, mine = 0.0, {os.getpid()}
    while found := {pid for pid, parent in parents.items() if parent in mine and pid not in mine}:
        mine |= found
    for pid in mine - {os.getpid()}:
        total += used[pid]
    return total


def measured(work: Callable[[], object]) -> tuple[float, float]:
    cpu_s, begun_s = tree_cpu_s(), time.monotonic()
    work()
    return time.monotonic() - begun_s, tree_cpu_s() - cpu_s


def cases(spark: Any, store: Path, parquet: Path) -> dict[str, Callable[[], object]]:
    """Return a function for each case of the benchmark, keyed by name; a call runs the case once."""

    def noop(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def read(**options: str) -> Any:
        return spark.read.format("flintmq").options(**options).load(str(store))

    def stream(**options: str) -> None:
        frame = spark.readStream.format("flintmq").options(startingOffsets="earliest", **options).load(str(store))
        checkpoint = store.parent / "checkpoint"
        shutil.rmtree(checkpoint, ignore_errors=True)
        query = (
            frame.writeStream.format("noop").trigger(availableNow=True).option("checkpointLocation", str(checkpoint))
        )
        query.start().awaitTermination()

    three = THREE.split(",")
    return {
        "flintmq_all": lambda: noop(read()),
        "parquet_all": lambda: noop(spark.read.parquet(str(parquet))),
        "flintmq_three": lambda: noop(read(columns=THREE)),
        "parquet_three": lambda: noop(spark.read.parquet(str(parquet)).select(*three)),
        "flintmq_one_topic": lambda: noop(read(subscribe="topic3")),
        "flintmq_count": lambda: read().count(),
        "flintmq_count_one_column": lambda: read(columns="queueOffset").count(),
        "flintmq_stream_three": lambda: stream(columns=THREE),
    }


def micro_batch_floor_ms(spark: Any, store: Path) -> float:
    """Return the median time that a streaming query takes for a micro-batch of a thousand messages, in ms."""
    checkpoint = store.parent / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "1000", "subscribe": "topic0", "columns": THREE}
    frame = spark.readStream.format("flintmq").options(**options).load(str(store))
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    while not (query.lastProgress and query.lastProgress["batchId"] >= 25):
        time.sleep(0.1)
    query.stop()
    found = [one["durationMs"]["triggerExecution"] for one in query.recentProgress if 5 <= one["batchId"] <= 25]
    return statistics.median(found)


def of_rounds(name: str, above: list[tuple[float, float]], below: list[tuple[float, float]]) -> dict[str, float]:
    """Return the medians of the rounds' ratios of two cases, for seconds and for CPU seconds. Ratios within a round are used,
    because other work of the machine affects both cases of a round."""
    rounds = list(zip(above, below, strict=True))
    return {
        name: round(statistics.median(one[0] / other[0] for one, other in rounds), 3),
        f"{name}, CPU": round(statistics.median(one[1] / other[1] for one, other in rounds), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="a folder for the store and its Parquet copy; kept")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    store, parquet = arguments.work / "store", arguments.work / "parquet"
    if not store.exists():
        make_store(store, arguments.records)
    spark = session(arguments.master, "bench", {"spark.log.level": "ERROR"})
    if not parquet.exists():
        spark.read.format("flintmq").load(str(store)).write.parquet(str(parquet))
    assert spark.read.format("flintmq").load(str(store)).count() == spark.read.parquet(str(parquet)).count()
    runs = cases(spark, store, parquet)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for number in range(arguments.rounds + 1):
        for name, run in runs.items():
            result = measured(run)
            if number:  # The first round is not counted, because it warms up Spark.
                times[name].append(result)
    floor_ms = micro_batch_floor_ms(spark, store)
    spark.stop()
    seconds = {name: round(statistics.median(one[0] for one in found), 3) for name, found in times.items()}
    cpu = {name: round(statistics.median(one[1] for one in found), 2) for name, found in times.items()}
    ratios = {
        **of_rounds("parquet/flintmq, all columns", times["parquet_all"], times["flintmq_all"]),
        **of_rounds("parquet/flintmq, three columns", times["parquet_three"], times["flintmq_three"]),
        **of_rounds("count() / count() of one column", times["flintmq_count"], times["flintmq_count_one_column"]),
        **of_rounds("one topic of eight / all", times["flintmq_one_topic"], times["flintmq_all"]),
    }
    print(
        json.dumps(
            {
                "bench": "spark",
                "records": arguments.records,
                "seconds": seconds,
                "cpu_seconds": cpu,
                "ratios": ratios,
                "micro_batch_floor_ms": floor_ms,
                "machine": machine_facts(),
            }
        )
    )


if __name__ == "__main__":
    main()
