"""A streaming query in a process of its own, to be killed: from FlintMQ or a broker to Parquet, with a checkpoint.

``python spark_stream.py '<JSON>'`` runs it up to what there is and prints what the query's table holds. The JSON has
``options`` of the source, ``path`` where it reads files, ``out`` and ``checkpoint``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import attrs

RUN_S = 240.0
_STARTED: list[subprocess.Popen[bytes]] = []


def main(job: dict[str, Any]) -> dict[str, int]:
    """Runs the query to its end; returns what its table holds then."""
    from flintmq.plugins.spark import session

    spark = session("local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.readStream.format("flintmq").options(**job["options"]).load(job.get("path"))
    kept = rows.selectExpr("topic", "brokerName", "queueId", "queueOffset", "CAST(body AS STRING) AS body")
    writer = (
        kept.writeStream.format("parquet").option("path", job["out"]).option("checkpointLocation", job["checkpoint"])
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    table = spark.read.parquet(job["out"])  # by the query's log: what killed tasks left in the folder does not count
    found = table.selectExpr(
        "count(*) AS rows",
        "count(DISTINCT topic, brokerName, queueId, queueOffset) AS places",
        "count(DISTINCT body) AS bodies",
        "count_if(body IS NULL) AS empty",
    ).first()
    spark.stop()
    return dict(found.asDict())


@attrs.frozen
class StreamJob:
    """The query from the test's side."""

    folder: Path
    options: dict[str, str]
    path: str | None = None

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def batches_done(self) -> int:
        """How many micro-batches are committed."""
        return len([name for name in self._names("commits") if name.isdigit()])

    @property
    def batches_begun(self) -> int:
        """How many are committed or under way."""
        return len([name for name in self._names("offsets") if name.isdigit()])

    def _names(self, log: str) -> list[str]:
        try:
            return os.listdir(self.checkpoint / log)  # noqa: PTH208
        except FileNotFoundError:
            return []

    def start(self) -> subprocess.Popen[bytes]:
        """A process, leader of a group that can be killed."""
        import flintmq

        link = self.folder / "path" / "flintmq"  # the repository is the package, whatever its folder is called
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path(str(flintmq.__file__)).parent)
        job = {"options": self.options, "out": str(self.folder / "out"), "checkpoint": str(self.checkpoint)}
        with (self.folder / "spark.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, __file__, json.dumps(job | ({"path": self.path} if self.path else {}))],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(link.parent)},
            )
        _STARTED.append(process)
        return process

    def killed_in_a_batch(self, after: int) -> None:
        """Runs the query and kills it with SIGKILL while a batch is under way, behind ``after`` further batches."""
        goal = self.batches_done + after
        process = self.start()
        gate, ended = threading.Event(), threading.Timer(RUN_S, kill_group, [process])
        ended.start()
        try:
            while process.poll() is None:
                if self.batches_done >= goal and self.batches_begun > self.batches_done:
                    break
                gate.wait(0.02)  # nothing tells of a file that has come; looking is cheap
            assert process.poll() is None, f"the query ended too early: {self.log_end}"
        finally:
            ended.cancel()
            kill_group(process)

    def finished(self) -> dict[str, int]:
        """Runs the query to its end; what its table holds then."""
        process = self.start()
        try:
            out, _ = process.communicate(timeout=RUN_S)
        finally:
            kill_group(process)
        assert process.returncode == 0, self.log_end
        found: dict[str, int] = json.loads(out.decode().strip().splitlines()[-1])
        return found

    @property
    def log_end(self) -> str:
        return (self.folder / "spark.log").read_text(errors="replace")[-4000:]


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kills the driver and its JVM at once; the workers see that and end."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def end_streams() -> None:
    """Kills what a failed test left."""
    for process in _STARTED:
        kill_group(process)
    _STARTED.clear()


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))), flush=True)
