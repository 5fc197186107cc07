"""Checks that a transient store pool follows the rules of its interface,
:class:`~flintmq.core.kernel.ports.TransientStorePool`."""

from __future__ import annotations

from collections.abc import Callable

from flintmq.core.kernel.ports import TransientStorePool
from flintmq.testing.failure import expect


def check_transient_store_pool(factory: Callable[[int, int], TransientStorePool]) -> None:
    """Run every check of a transient store pool. The pool is made by ``factory``, which is called with the number of buffers
    and the bytes of each buffer.

    Raises:
        KitFailure: names the broken rule.
    """
    size_bytes = 3 * 4096
    pool = factory(2, size_bytes)
    expect(pool.available_buffers == 2, "a new pool has all its buffers", pool.available_buffers)
    first, second = pool.borrow(), pool.borrow()
    if first is None or second is None:
        expect(False, "a pool lends as many buffers as it has")
        return
    expect(pool.available_buffers == 0, "borrowed buffers are not available", pool.available_buffers)
    expect(pool.borrow() is None, "an exhausted pool answers None")
    expect(len(first) == size_bytes and len(second) == size_bytes, "a buffer has the size asked for", len(first))
    expect(not first.readonly, "a buffer is writable")
    first[:] = b"\xaa" * size_bytes
    expect(bytes(second[:16]) != b"\xaa" * 16, "buffers do not share memory")
    pool.give_back(first)
    expect(pool.available_buffers == 1, "a buffer given back is available", pool.available_buffers)
    again = pool.borrow()
    if again is None:
        expect(False, "a buffer given back can be borrowed again")
        return
    expect(b"\xaa" not in bytes(again), "what the last borrower wrote is not readable")
    pool.give_back(again)
    pool.give_back(second)
    pool.close()
    pool.close()
    expect(pool.borrow() is None, "a closed pool lends nothing")
