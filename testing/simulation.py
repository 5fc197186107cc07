"""Run brokers, name servers and clients in one thread, where a seed decides order, time, network and chance.

::

    simulation = Simulation(Choices(seed=7))
    simulation.run(main())     # the same seed gives the same run

Each broker, name server and client takes ``clock=simulation.clock``, and each broker a
:class:`~flintmq.testing.simulated_disk.SimulatedDisk`; brokers and name servers listen on the simulated network by themselves.
``listen.loop_blocked_warn_ms`` must be 0: the watch over a blocked loop is a thread of the machine.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import Any, TypeVar

from flintmq.core.io import chance, lazy_numpy
from flintmq.remoting.wire.command import opaques_from_one
from flintmq.testing.choices import Choices
from flintmq.testing.seeded_loop import SeededClock, SeededLoop
from flintmq.testing.simulated_network import SimulatedNetwork

T = TypeVar("T")


class Simulation:
    """One run. Not thread-safe.

    Two runs of the same decisions are alike in the same process, and in two processes where ``PYTHONHASHSEED`` is the same,
    but for the number of the process in the ids of messages.

    Args:
        choices: decides.
    """

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        """Its ``made`` is the trace of the run."""
        self.loop = SeededLoop(choices)
        self.clock = SeededClock(self.loop)
        self.network = SimulatedNetwork(self.loop)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and return its result. Raises what :meth:`.SeededLoop.run` raises."""
        lazy_numpy.load()  # else a thread of the machine imports it, and code takes another way when that is done
        with chance.decided_by(random.Random(self.choices.seed)), opaques_from_one():
            return self.loop.run(main)
