"""Bugs that tests plant into the client, to show that a state machine finds them."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any, Final

import attrs
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis.errors import FlakyFailure

from flintmq.core.errors import FlintError
from flintmq.tests.support.client_machine import ClientMachine, run_machine

EXAMPLES = 200
"""How many runs a machine has to find a bug."""
Plant = Callable[[pytest.MonkeyPatch], None]
Finder = type[ClientMachine] | Callable[[Any], None]
"""A machine; or a test, which is given what captures the log."""


@attrs.frozen
class Bug:
    """A bug, and the machine or the test that finds it."""

    name: str
    finder: Finder
    plant: Plant


def bug(bugs: list[Bug], finder: Finder) -> Callable[[Plant], Plant]:
    """Enter a function, which plants the bug of its name, into a list."""

    def enter(plant: Plant) -> Plant:
        bugs.append(Bug(plant.__name__, finder, plant))
        return plant

    return enter


FINDS: Final = (
    AssertionError,
    SystemExit,
    KeyboardInterrupt,
    TimeoutError,
    FlintError,
    ValueError,
    pytest.fail.Exception,
)
"""What a finder may raise."""


def find(planted: Bug, patch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture | None = None) -> None:
    """Plant a bug and have its machine, or its test, find it. Raises where it is not found."""
    planted.plant(patch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a run that is broken off leaves coroutines behind
        with pytest.raises(FINDS):
            _run(planted.finder, caplog)
        gc.collect()


def _run(finder: Finder, caplog: pytest.LogCaptureFixture | None) -> None:
    """Run a machine, or a test. A machine has the same examples each time, and others if these show nothing."""
    if not isinstance(finder, type):
        finder(caplog)
        return
    for derandomize in (True, False):
        try:
            run_machine(
                finder,
                EXAMPLES,
                phases=[Phase.generate],
                derandomize=derandomize,
                database=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            )
        except FlakyFailure as flaky:  # a run failed, and passes now: when garbage is collected is not of the seed
            raise flaky.exceptions[0] from None
