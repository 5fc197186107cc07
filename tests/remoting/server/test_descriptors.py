"""Connections end below a ceiling of descriptors: what the store needs may not depend on how many peers there are."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.remoting.server.descriptors import (
    RESERVED_MAX,
    connections_ceiling,
    has_room,
    is_below_ceiling,
    raise_limit,
)


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    """The process's own, which come back."""
    found = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield found
    resource.setrlimit(resource.RLIMIT_NOFILE, found)


@contextlib.contextmanager
def holes_filled(fd: int) -> Iterator[None]:
    """Take every number below the highest one in use, so that what is opened next has consecutive numbers."""
    with contextlib.ExitStack() as stack:
        highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
        taken = -1
        while taken < highest:
            taken = os.dup(fd)
            stack.callback(os.close, taken)
        yield


@pytest.mark.parametrize(
    ("limit", "ceiling"), [(1_024, 1_024 - RESERVED_MAX), (1 << 20, (1 << 20) - RESERVED_MAX), (256, 192), (64, 48)]
)
def test_a_part_of_the_file_descriptor_limit_is_reserved_and_not_available_to_connections(
    limit: int, ceiling: int
) -> None:
    """A small limit must leave something to both."""
    assert connections_ceiling(limit) == ceiling


def test_a_new_connection_is_allowed_only_while_an_unreserved_file_descriptor_is_free(
    limits: tuple[int, int],
) -> None:
    """Whoever holds the descriptors: those of a program around count as well, and the limit is looked at each time."""
    with socket.socket() as listening, holes_filled(listening.fileno()):
        lowest = os.dup(listening.fileno())
        os.close(lowest)
        limit = next(n for n in range(lowest, 4 * lowest + 8) if connections_ceiling(n) == lowest + 2)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
        assert has_room(listening.fileno())
        taken = [os.dup(listening.fileno()) for _ in range(2)]
        assert not has_room(listening.fileno())
        assert is_below_ceiling(taken[-1])
        assert not is_below_ceiling(taken[-1] + 1)
        os.close(taken.pop())
        assert has_room(listening.fileno())
        os.close(taken.pop())


def test_a_new_connection_is_not_allowed_if_the_process_has_no_free_file_descriptor(limits: tuple[int, int]) -> None:
    """Not even for the look."""
    with socket.socket() as listening:
        lowest = os.dup(listening.fileno())
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
        assert not has_room(listening.fileno())


def test_raise_limit_raises_the_file_descriptor_limit_to_its_maximum(limits: tuple[int, int]) -> None:
    """Most systems give 1,024 and allow many more."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1] - 1, limits[1]))
    raise_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limits[1], limits[1])
