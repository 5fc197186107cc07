"""Spark in a process of its own that sends to a broker, reads what it sent, and streams it from one topic to another, twice.

``python spark_round_trip.py '<JSON>'`` prints what it found. The JSON has ``namesrv`` and ``checkpoint``; how it signs and
encrypts, the environment says.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RUN_S = 300.0
ROWS = 400
OUT, AGAIN = "SparkOut", "SparkAgain"


def main(job: dict[str, str]) -> dict[str, Any]:
    """Sends, reads and streams; returns what was found."""
    from pyspark.sql import functions

    from flintmq.plugins.spark import session

    spark = session("local[2]", "round trip", {"spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"})
    where = {"nameServer": job["namesrv"]}

    def send(first: int, end: int) -> None:
        rows = spark.range(first, end).select(
            functions.concat(functions.lit("body "), "id").alias("body"),
            functions.concat(functions.lit("tag"), functions.col("id") % 3).alias("tags"),
            functions.concat(functions.lit("key"), "id").alias("keys"),
            functions.create_map(functions.lit("n"), functions.col("id").cast("string")).alias("properties"),
        )
        rows.write.format("flintmq").options(**where, topic=OUT).mode("append").save()

    def stream() -> None:
        rows = spark.readStream.format("flintmq").options(**where, subscribe=OUT, startingOffsets="earliest").load()
        writer = rows.select("body", "tags", "keys").writeStream.format("flintmq").options(**where, topic=AGAIN)
        writer.option("checkpointLocation", job["checkpoint"]).trigger(availableNow=True).start().awaitTermination()

    def found(topic: str) -> list[list[str]]:
        rows = spark.read.format("flintmq").options(**where, subscribe=topic).load()
        text = rows.selectExpr("CAST(body AS STRING)", "tags", "keys", "properties['n']", "properties['SPARK_TXN']")
        return sorted(list(row) for row in text.collect())

    send(0, ROWS // 2)
    stream()
    send(ROWS // 2, ROWS)
    stream()
    result = {"out": found(OUT), "again": found(AGAIN)}
    spark.stop()
    return result


def check_round_trip(namesrv: str, folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Every row is there once, as it was sent, in both topics; a second run of the stream takes only what is new.

    Args:
        namesrv: of a broker without the two topics.
        folder: for the checkpoint.
        environment: what says how to sign and encrypt.
    """
    asyncio.run(_create_topics(namesrv, dict(environment or {})))
    done = run({"namesrv": namesrv, "checkpoint": str(folder / "checkpoint")}, folder, environment)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    wanted = sorted([f"body {number}", f"tag{number % 3}", f"key{number}", str(number)] for number in range(ROWS))
    assert [row[:4] for row in found["out"]] == wanted
    assert [row[:3] for row in found["again"]] == [row[:3] for row in wanted]
    for topic in ("out", "again"):
        assert len({row[4] for row in found[topic]}) == ROWS  # each has a transaction of its own


def run(
    job: Mapping[str, str], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The process, ended."""
    import flintmq

    link = folder / "path" / "flintmq"  # the repository is the package, whatever its folder is called
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(Path(str(flintmq.__file__)).parent)
    return subprocess.run(
        [sys.executable, __file__, json.dumps(job)],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        env={**os.environ, "PYTHONPATH": str(link.parent), **(environment or {})},
        check=False,
    )


async def _create_topics(namesrv: str, environment: Mapping[str, str]) -> None:
    from flintmq.core.errors import RefusedError
    from flintmq.remoting.client.access import access_of
    from flintmq.remoting.client.admin import AdminClient

    async with AdminClient(namesrv, **access_of(environment).options()) as admin:
        for topic in (OUT, AGAIN):
            await admin.create_topic(topic, queues=4)
            for _ in range(600):
                try:
                    if await admin.topic_route(topic):
                        break
                except RefusedError:
                    await asyncio.sleep(0.1)  # a name server tells nobody that it has heard of a topic
            else:
                raise AssertionError(f"the name server does not hear of {topic}")


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))), flush=True)
