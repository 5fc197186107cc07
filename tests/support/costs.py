"""Measures work: the longest turn of an event loop in processor time, and the most memory that Python takes for it."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest


@attrs.define
class Cost:
    """The measured costs of a call."""

    turn_ms: float = 0.0
    """Processor time of the calling thread in the longest turn of its loop."""
    peak_bytes: int = 0


@contextmanager
def turns() -> Iterator[Cost]:
    """Measure the turns of this thread's loop; waits, and what other threads and processes do meanwhile, do not count."""
    cost, thread = Cost(), threading.get_ident()
    run = asyncio.Handle._run

    def measured(handle: Any) -> None:
        if threading.get_ident() != thread:
            run(handle)
            return
        begin_s = time.thread_time()
        run(handle)
        cost.turn_ms = max(cost.turn_ms, (time.thread_time() - begin_s) * 1000)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", measured)
        yield cost


@contextmanager
def memory() -> Iterator[Cost]:
    """Measure the memory of all threads. It makes them several times as slow."""
    cost = Cost()
    gc.collect()
    tracemalloc.start()
    before_bytes = tracemalloc.get_traced_memory()[0]
    try:
        yield cost
        cost.peak_bytes = tracemalloc.get_traced_memory()[1] - before_bytes
    finally:
        tracemalloc.stop()
