"""A broker under load, a query killed twice: every message is in the result, and none twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import pytest
from bare_wire import Wire, sent
from broker_process import BrokerProcess, Promises

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1200), pytest.mark.filterwarnings("ignore")]

PROGRAM = """
import json, sys
from pyspark.sql import functions as F
from flintmq.plugins.spark import register, session
store, work, last = sys.argv[1], sys.argv[2], sys.argv[3] == "last"
spark = session("local[2]", "kill", {"spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"})
register(spark)
frame = spark.readStream.format("flintmq").option("startingOffsets", "earliest").option("subscribe", "Kill")
frame = frame.option("maxOffsetsPerTrigger", "400" if not last else "100000").load(store)
frame = frame.select("queueId", "queueOffset", F.crc32("body").alias("crc"))
writer = frame.writeStream.format("parquet").option("checkpointLocation", work + "/checkpoint")
if last:
    writer = writer.trigger(availableNow=True)
writer.start(work + "/out").awaitTermination()
rows = spark.read.parquet(work + "/out").collect()
print("RESULT " + json.dumps([[row.queueId, row.queueOffset, row.crc] for row in rows]))
spark.stop()
"""


class Trickle(threading.Thread):
    """Sends some hundred messages a second, so that the query is always at work and the test has an end."""

    def __init__(self, address: str, promises: Promises, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._wire = Wire(address)
        self._promises = promises
        self._chance = chance
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.wait(0.03):
                bodies = [self._chance.randbytes(self._chance.randrange(16, 400)) for _ in range(8)]
                sends = [
                    (self._wire.post_send("Kill", body, queue_id=number % 4), body)
                    for number, body in enumerate(bodies)
                ]
                for opaque, body in sends:
                    answer = sent(self._wire.answer(opaque))
                    assert answer.code == 0, answer
                    self._promises.promise(answer.queue_id, answer.queue_offset, body)
        except BaseException as error:
            self.error = error
        finally:
            self._wire.close()


def batches(work: Path) -> int:
    """How many batches the query has committed."""
    folder = work / "checkpoint" / "commits"
    return sum(path.name.isdigit() for path in folder.iterdir()) if folder.is_dir() else 0


def start(store: Path, work: Path, how: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    log = (work / "query.log").open("a")
    with log:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(store), str(work), how],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            start_new_session=True,
        )


def kill(process: subprocess.Popen[str]) -> None:
    """Driver, Java and workers at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize(
    "fed", [True, pytest.param(False, marks=pytest.mark.longest)], ids=["with a feed", "without a feed"]
)
def test_a_query_that_is_killed_and_restarted_writes_each_row_exactly_once(
    needs_spark: None, environment: dict[str, str], tmp_path: Path, fed: bool
) -> None:
    """SIGKILL in the middle of batches, while producers send; then the sink holds what the broker holds, once."""
    chance = random.Random(20_260 + fed)
    dispatchers = "consume_queue,index,spark_feed" if fed else "consume_queue,index"
    broker = BrokerProcess(tmp_path / "store", f"dispatchers={dispatchers}")
    broker.wait_ready()
    promises = Promises()
    sender = Trickle(broker.address, promises, chance)
    sender.start()
    work = tmp_path / "work"
    work.mkdir()
    for _ in range(2):
        process = start(broker.store, work, "run", environment)
        before, deadline = batches(work), time.monotonic() + 240
        try:
            while batches(work) < before + 3:
                assert process.poll() is None, (work / "query.log").read_text()[-4000:]
                assert time.monotonic() < deadline, "the query does not get on"
                time.sleep(0.02)
            time.sleep(chance.random() * 0.4)  # somewhere within a batch
        finally:
            kill(process)
    sender.stopping.set()
    sender.join(60)
    assert sender.error is None
    wire = Wire(broker.address)
    total = promises.check(wire, "Kill")
    wire.close()
    assert total > 1_000
    process = start(broker.store, work, "last", environment)
    try:
        output, _ = process.communicate(timeout=400)
    finally:
        if process.poll() is None:
            kill(process)
    lines = [line for line in output.splitlines() if line.startswith("RESULT ")]
    assert lines, (work / "query.log").read_text()[-4000:]
    rows = [tuple(row) for row in json.loads(lines[0][7:])]
    assert len(rows) == len(set(rows)) == total
    assert set(rows) == {
        (queue_id, number, zlib.crc32(body))
        for queue_id, bodies in promises.verified.items()
        for number, body in enumerate(bodies)
    }
    assert broker.end(signal.SIGTERM) == 0
