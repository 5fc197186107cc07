"""Bugs that tests plant into the client, to show that a state machine finds them."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable

import attrs
import pytest
from hypothesis import HealthCheck, Phase

from flintmq.tests.support.client_machine import ClientMachine, run_machine

EXAMPLES = 200
"""How many runs a machine has to find a bug."""
Plant = Callable[[pytest.MonkeyPatch], None]


@attrs.frozen
class Bug:
    """A bug, and the machine that finds it."""

    name: str
    machine: type[ClientMachine]
    plant: Plant


def bug(bugs: list[Bug], machine: type[ClientMachine]) -> Callable[[Plant], Plant]:
    """Enter a function, which plants the bug of its name, into a list."""

    def enter(plant: Plant) -> Plant:
        bugs.append(Bug(plant.__name__, machine, plant))
        return plant

    return enter


def find(planted: Bug, patch: pytest.MonkeyPatch) -> None:
    """Plant a bug and have its machine find it; the examples are the same each time. Raises where it is not found."""
    planted.plant(patch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a run that is broken off leaves coroutines behind
        with pytest.raises((AssertionError, SystemExit, KeyboardInterrupt)):
            run_machine(
                planted.machine,
                EXAMPLES,
                phases=[Phase.generate],
                derandomize=True,
                database=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            )
        gc.collect()
