"""Each order that the program has sent is billed once, although the program is ended under load."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path


def live(folder: Path, *, orders: int) -> None:
    """Run the program until it has sent a number of further orders, then end the program with SIGTERM."""
    sent = folder / "sent.txt"
    before = len(lines(sent))
    with subprocess.Popen([sys.executable, "-W", "error", "-m", "orders_threads.program", str(folder)]) as program:
        try:
            give_up_s = time.monotonic() + 30
            while len(lines(sent)) < before + orders:
                assert program.poll() is None
                assert time.monotonic() < give_up_s
                time.sleep(0.02)
            program.send_signal(signal.SIGTERM)
            assert program.wait(20) == 0
        finally:
            program.kill()


def lines(path: Path) -> list[str]:
    """Return the lines of a journal's file; an empty list if the file does not exist."""
    return path.read_text("utf-8").splitlines() if path.exists() else []


def test_two_runs_of_the_program_bill_each_order_once(tmp_path: Path) -> None:
    """The second run of the program bills the orders that the first run did not bill before its end."""
    live(tmp_path, orders=300)
    live(tmp_path, orders=300)
    left = set(lines(tmp_path / "sent.txt"))
    assert len(left) >= 600
    for _ in range(5):
        if not left - set(lines(tmp_path / "billed.txt")):
            break
        live(tmp_path, orders=1)
    billed = Counter(lines(tmp_path / "billed.txt"))
    assert not left - billed.keys()
    assert [order for order, times in billed.items() if times > 1 and order != "opening"] == []
