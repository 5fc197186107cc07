"""Measures the processor time of storing messages without a socket: batches of 100 messages, with the embedding API."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from pathlib import Path

from flintmq.config import load_config
from flintmq.core.io import lazy_numpy
from flintmq.programs.bench.flush_round import QUIET
from flintmq.programs.broker.broker import Broker
from flintmq.remoting.client.message import Message

BATCH = 100


async def put_us(seconds: float, size_bytes: int, folder: Path | None = None) -> float:
    """Return the processor time per stored message in µs, for the checks, the append, the queues and the index. The measured
    calls of ``Broker.put`` are not awaited."""
    store = Path(tempfile.mkdtemp(prefix="flintmq-bench-put-", dir=folder))
    try:
        overrides = [*QUIET, f"store.path={store / 'store'}"]
        async with Broker(load_config(None, overrides, {})) as broker:
            # numpy is loaded before the measurement, because the time to load it must not count.
            lazy_numpy.load()
            messages = [Message("FlintPut", b"." * size_bytes, tags="TagA") for _ in range(BATCH)]
            for _ in range(20):
                await broker.put(messages)
            count = 0
            until_s = time.perf_counter() + seconds
            cpu_s = time.process_time()
            while time.perf_counter() < until_s:
                broker.put(messages)
                count += BATCH
                if count % (20 * BATCH) == 0:
                    await asyncio.sleep(0)
            return (time.process_time() - cpu_s) / count * 1e6
    finally:
        shutil.rmtree(store, ignore_errors=True)
