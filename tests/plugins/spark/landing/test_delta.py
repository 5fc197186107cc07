"""A landing zone that is a Delta table: data and position in one transaction."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from landing_log import SOURCE, LittleLog

from flintmq.plugins.spark.landing.lander import Lander
from flintmq.plugins.spark.landing.task import LandingError, LogSource

deltalake = pytest.importorskip("deltalake", reason="needs deltalake: pip install '.[delta]'")


def offsets(zone: Path) -> list[int]:
    table = deltalake.DeltaTable(str(zone)).to_pyarrow_table(columns=["physicalOffset"])
    return sorted(table["physicalOffset"].to_pylist())


def land(lander: Lander, ends: list[int]) -> None:
    for end in ends:
        while lander._at < end:
            lander.land(end, 1 << 20)
    lander.close()


def test_a_restarted_writer_continues_at_the_log_position_of_its_last_delta_transaction(
    tmp_path: Path, little_log: LittleLog
) -> None:
    """The position is the transaction's: a new lander takes it from the table, whoever makes it."""
    zone = tmp_path / "zone"
    task = little_log.task(zone, format="delta", compression="zstd")
    land(Lander(task, 0), little_log.ends[10:30:10])
    again = Lander(task, 12_345)
    assert again.committed_bytes == little_log.ends[20]
    land(again, [little_log.end])
    assert offsets(zone) == sorted(little_log.landing)
    table = deltalake.DeltaTable(str(zone)).to_pyarrow_table()
    assert dict(zip(table["physicalOffset"].to_pylist(), table["topic"].to_pylist(), strict=True)) == little_log.landing
    days = {str(time.date()) for time in table["storeTimestamp"].to_pylist()}
    assert {str(day) for day in table["date"].to_pylist()} == days
    assert deltalake.DeltaTable(str(zone)).transaction_version(f"flintmq:{SOURCE.store_id}") == little_log.end


def test_a_delta_transaction_is_not_repeated_after_a_kill_of_the_writer(tmp_path: Path, little_log: LittleLog) -> None:
    """A killed process could not report its transaction, so the next one must find it in the table."""
    zone = tmp_path / "zone"
    task = little_log.task(zone, format="delta", compression="zstd")
    program = """
import os, signal, sys, deltalake
write = deltalake.write_deltalake
def deadly(*arguments, **named):
    write(*arguments, **named)
    os.kill(os.getpid(), signal.SIGKILL)
deltalake.write_deltalake = deadly
from flintmq.plugins.spark.landing.lander import Lander
from flintmq.plugins.spark.landing.task import LandingTask
Lander(LandingTask.from_json(sys.argv[1]), 0).land(int(sys.argv[2]), 1 << 20)
"""
    arguments = [sys.executable, "-c", program, task.to_json(), str(little_log.ends[5])]
    killed = subprocess.run(arguments, capture_output=True, check=False, env=os.environ)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert offsets(zone) == sorted(offset for offset in little_log.landing if offset < little_log.ends[5])
    land(Lander(task, 0), [little_log.end])
    assert offsets(zone) == sorted(little_log.landing)


def test_a_delta_table_accepts_messages_of_several_stores_but_not_of_a_store_with_a_truncated_log(
    tmp_path: Path, little_log: LittleLog
) -> None:
    """Each store has a position of its own in the table; a history that was cut since is not mixed with the new one."""
    zone = tmp_path / "zone"
    other = LogSource(store_id="f" * 32, broker_name="broker-b", epochs=((1, 0),))
    for source in (SOURCE, other):
        land(Lander(little_log.task(zone, format="delta", compression="zstd", source=source), 0), [little_log.end])
    assert offsets(zone) == sorted(offset for offset in little_log.landing for _ in range(2))
    cut = attrs.evolve(SOURCE, epochs=((1, 0), (2, 100)))
    with pytest.raises(LandingError, match="a recovery has cut the log"):
        Lander(little_log.task(zone, format="delta", compression="zstd", source=cut), 0)
