"""Buffers outside of the heap must come back to their pool, and no other."""

from __future__ import annotations

import pytest

from flintmq.flush.transient_store_pool import AnonymousBufferPool


def test_returning_a_buffer_that_is_not_borrowed_from_the_pool_raises_an_error() -> None:
    """A buffer in the pool twice would be two files' buffer."""
    pool = AnonymousBufferPool(2, 4096)
    buffer = pool.borrow()
    assert buffer is not None
    pool.give_back(buffer)
    with pytest.raises(ValueError, match="not a borrowed buffer"):
        pool.give_back(buffer)
    with pytest.raises(ValueError, match="not a borrowed buffer"):
        pool.give_back(memoryview(bytearray(4096)))
    assert pool.available_buffers == 2
    pool.close()


def test_a_buffer_returned_after_the_pool_was_closed_is_freed() -> None:
    """The store may still commit from it while the broker stops."""
    pool = AnonymousBufferPool(1, 4096)
    buffer = pool.borrow()
    assert buffer is not None
    pool.close()
    buffer[:2] = b"ok"
    pool.give_back(buffer)
    assert pool.available_buffers == 0
    with pytest.raises(ValueError, match="released"):
        bytes(buffer)


@pytest.mark.parametrize(("buffers", "bytes_each"), [(0, 4096), (1, 0)])
def test_creating_a_pool_with_no_buffers_or_with_buffers_of_zero_bytes_raises_an_error(
    buffers: int, bytes_each: int
) -> None:
    with pytest.raises(ValueError, match="at least 1, got"):
        AnonymousBufferPool(buffers, bytes_each)
