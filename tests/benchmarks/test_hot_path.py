"""The benchmark of the stages is only worth something while it runs, and while it measures what the broker does."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

import flintmq

from .hot_path import PULL, SEND, SETTINGS, TOPIC, HotPath, measure, table

PULL_CALLS_MAX: Final = 37
"""Functions of ours that a warm pull calls; it may only shrink."""


def test_the_broker_benchmark_measures_every_stage_of_a_send_and_of_a_pull() -> None:
    found = asyncio.run(measure(calls=3))
    assert set(found) == {*SEND, "whole", "batch intake", "whole batch", "get", "whole pull"}
    assert all(value >= 0 for value in found.values())
    assert found["whole"] > 0


def test_a_pull_served_from_filled_caches_makes_a_bounded_number_of_flintmq_function_calls(tmp_path: Path) -> None:
    """Each function call between the bytes of the request and the written answer costs as much as ten attribute reads."""
    calls: Counter[str] = Counter()
    root = str(Path(flintmq.__file__).parent)

    def note(frame: FrameType, event: str, _argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(root) and not path.startswith(f"{root}/tests"):
            calls[f"{path.removeprefix(root)}:{frame.f_code.co_name}"] += 1

    async def live() -> None:
        loaded = flintmq.load_config(None, [*SETTINGS, f"store.path={tmp_path}", "topics.default_queue_nums=1"], {})
        async with flintmq.Broker(loaded) as broker:
            await broker.put([flintmq.Message(TOPIC, b"body") for _ in range(PULL)])
            while broker.state.store.dispatch():  # otherwise the pull may wait for the messages
                pass
            path = HotPath(broker, 128)
            pull = path.pull(0)
            for is_warm in (False, True):
                before = path.sink.written
                sys.setprofile(note if is_warm else None)
                path.channel.data_received(pull)
                sys.setprofile(None)
                assert path.sink.written > before + PULL * 91, "all records leave at once"
                await asyncio.sleep(0)

    asyncio.run(live())
    assert calls.total() <= PULL_CALLS_MAX, calls


@pytest.mark.slow
def test_the_stage_times_of_a_send_sum_to_less_than_150_percent_of_the_whole_send_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Prints it (run with -s). The stages are parts of the whole: far more than it, and something is measured twice."""
    found = asyncio.run(measure(calls=400))
    with capsys.disabled():
        print(f"\n{table(found)}")
    assert sum(found[name] for name in SEND) < 1.5 * found["whole"]
    assert found["get"] < found["whole pull"]
