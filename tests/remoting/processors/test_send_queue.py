"""Sends of one loop iteration are stored together, and no send waits for ever, whatever becomes of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.remoting.processors.send_queue import SHARE_BYTES, SendQueue


class Iterations:
    """A loop whose iterations a test makes."""

    def __init__(self) -> None:
        self._soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self._soon.append((callback, arguments))

    def run_one(self) -> int:
        """Call what was due when the iteration began; return how much that was."""
        due, self._soon = self._soon, []
        for callback, arguments in due:
            callback(*arguments)
        return len(due)


class Harness:
    """A queue, the shares it handed over, and the loop under it."""

    def __init__(self) -> None:
        self.loop = Iterations()
        self.shares: list[tuple[list[str], int]] = []
        self.steps: Callable[[], Iterator[None] | None] = lambda: None
        self.queue = SendQueue(self._store, lambda: self.loop, self.loop.call_soon)  # type: ignore[arg-type, return-value]

    def _store(self, requests: list[Any], size_bytes: int) -> Iterator[None] | None:
        self.shares.append(([request.name for request in requests], size_bytes))
        return self.steps()

    def add(self, *names: str, size_bytes: int = 1) -> None:
        body = range(size_bytes)  # as long as a body, without its bytes
        batch = [SimpleNamespace(name=name, body=body) for name in names]
        self.queue.add(batch)  # type: ignore[arg-type]


@pytest.fixture
def harness() -> Harness:
    """An empty queue."""
    return Harness()


def test_reads_of_one_iteration_are_one_share(harness: Harness) -> None:
    """One append and one sync for all of them."""
    harness.add("a", "b")
    harness.add("c")
    assert harness.shares == []
    harness.loop.run_one()
    assert harness.shares == [(["a", "b", "c"], 3)]
    assert harness.loop.run_one() == 0


def test_what_is_too_much_waits_for_the_next_iteration(harness: Harness) -> None:
    """Other connections are read in between; a single send is taken however large it is."""
    harness.add("a", size_bytes=SHARE_BYTES + 1)
    harness.add("b", "c", size_bytes=SHARE_BYTES // 2)
    for _ in range(3):
        harness.loop.run_one()
    assert [names for names, _ in harness.shares] == [["a"], ["b", "c"]]
    assert len(harness.queue) == 0


def test_a_large_share_is_stored_in_steps(harness: Harness) -> None:
    """Each step is an iteration of its own, and sends that arrive meanwhile are stored after it."""
    done: list[int] = []

    def steps() -> Iterator[None]:
        for step in range(2):
            done.append(step)
            yield
        done.append(9)

    harness.steps = steps
    harness.add("a")
    harness.loop.run_one()
    harness.steps = lambda: None
    harness.add("b")
    seen = []
    for _ in range(4):
        harness.loop.run_one()
        seen.append((list(done), len(harness.shares)))
    assert seen == [([0], 1), ([0, 1], 1), ([0, 1, 9], 1), ([0, 1, 9], 2)]


@pytest.mark.parametrize("in_steps", [False, True])
def test_a_defect_costs_one_share_only(harness: Harness, in_steps: bool) -> None:
    """The sends behind it are stored all the same."""

    def fail() -> Iterator[None] | None:
        raise ZeroDivisionError

    def fail_later() -> Iterator[None]:
        yield from ()
        raise ZeroDivisionError

    harness.steps = fail_later if in_steps else fail
    harness.add("a")
    if in_steps:
        harness.loop.run_one()
    harness.add("b")
    with pytest.raises(ZeroDivisionError):
        harness.loop.run_one()
    harness.steps = lambda: None
    harness.loop.run_one()
    assert [names for names, _ in harness.shares] in ([["a"], ["b"]], [["a", "b"]])
    assert len(harness.queue) == 0
