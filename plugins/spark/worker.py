"""What is done once in each of Spark's worker processes."""

from __future__ import annotations

import functools
import gc


@functools.cache
def settle() -> None:
    """Take everything imported so far out of the garbage collector's sight.

    Spark collects garbage after every task; with pyarrow and numpy imported that walks 60,000 objects that never die, and
    makes small tasks five times as slow (docs/spark.md). What is garbage now must go before.
    """
    gc.collect()
    gc.freeze()
