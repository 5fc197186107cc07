"""Starts brokers as processes, and restarts brokers whose processes end.

If a broker's process ends, for whatever reason, the broker is started again after a pause. The pause is 1 s, and is doubled up
to 30 s if the broker ends again soon. If the first start of a broker fails, all brokers are stopped. At the stop, the processes
get SIGTERM, and processes that still run after 60 s get SIGKILL.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

from flintmq.core.client_log import printable
from flintmq.core.io.child_process import end_process, read_ready_words
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.kernel.ports.service import READY_WORDS
from flintmq.core.log_events import event_log
from flintmq.programs.cli.exits import CommandError, ExitCode, passed_on
from flintmq.programs.supervisor.plan import BrokerPlan

log = event_log("flintmq.supervisor")

PAUSES_S: Final = (1.0, 30.0)
"""Minimum and maximum pause before a broker is restarted, in seconds."""
STEADY_S: Final = 60.0
"""Time in seconds. If a broker has run for at least this time before it ends, it is restarted after the minimum pause. If it
ends earlier, the pause before its restart is twice the previous pause, up to the maximum pause."""
STOP_TIMEOUT_S: Final = 60.0
PROGRAM: Final = (sys.executable, "-m", "flintmq", "broker")


class Supervisor:
    """Keeps brokers running in separate processes, from ``__aenter__`` to ``__aexit__``. For the loop thread only.

    Args:
        plans: the brokers to start.
        arguments: arguments of ``flintmq broker`` for all brokers; a plan's settings override them.
        program: the command that takes the arguments.
        pauses_s: the shortest and the longest pause before a broker is restarted.
        clock: measures how long a broker has served.

    Raises (at ``__aenter__``):
        CommandError: a broker did not start, with its exit code. The other brokers are stopped.
    """

    def __init__(
        self,
        plans: Sequence[BrokerPlan],
        arguments: Sequence[str] = (),
        *,
        program: Sequence[str] = PROGRAM,
        pauses_s: tuple[float, float] = PAUSES_S,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        command = (*program, *arguments)
        self.brokers = tuple(SupervisedBroker(plan, command, pauses_s, clock, self._tell) for plan in plans)

    @property
    def ready_words(self) -> dict[str, str]:
        """The words, such as addresses, that services add to the line ``READY …``, which a broker prints when it accepts
        requests.

        The key is the name of a word, such as ``metrics``. The value contains the words with this name from all brokers,
        separated by commas.
        """
        names = dict.fromkeys(name for broker in self.brokers for name in broker.ready_words)
        return {name: ",".join(filter(None, (one.ready_words.get(name) for one in self.brokers))) for name in names}

    def _tell(self) -> None:
        """Send the first serving broker the list of brokers that are down, and the others an empty list.

        The first serving broker then reports an alarm for each broker that is down, because a broker that is down cannot.
        """
        down = {broker.name: broker.last_end for broker in self.brokers if broker.is_down}
        for place, broker in enumerate(broker for broker in self.brokers if not broker.is_down):
            broker.tell({} if place else down)

    async def __aenter__(self) -> Self:
        starting = [asyncio.create_task(broker.start(), name=f"start {broker.name}") for broker in self.brokers]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
            await self._stop()
            raise
        for broker in self.brokers:
            broker.keep()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stop()

    async def _stop(self) -> None:
        await asyncio.gather(*(broker.stop() for broker in self.brokers))


class SupervisedBroker:
    """A broker's current process and its restarts. For the loop thread only.

    Args:
        plan: the broker's name and settings.
        command: the program and the arguments of all brokers.
        pauses_s: the shortest and the longest pause before a restart.
        clock: measures how long the broker has served.
        changed: called when :attr:`is_down` or its reason has changed.
    """

    def __init__(
        self,
        plan: BrokerPlan,
        command: Sequence[str],
        pauses_s: tuple[float, float],
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self.name = plan.name
        self.address = ""
        """``host:port`` of the broker; empty until the broker is ready for the first time."""
        self.ready_words: dict[str, str] = {}
        """Words that services added to the broker's last line ``READY …``, such as addresses, keyed by the name of the
        service."""
        self.restarts = 0
        self.last_end = ""
        """How the broker's last process ended; empty until a process has ended."""
        self.is_down = False
        """Whether the broker's process has ended and its next process is not ready yet."""
        self._changed = changed
        self._settings = list(plan.settings)
        self._keeps_port = plan.has_free_port
        self._kept_ports = plan.free_ports
        self._command = command
        self._pauses_s = pauses_s
        self._clock = clock
        self._process: Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The id of the broker's process; None if the process does not run."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the broker's process, and wait until the broker is ready.

        Raises:
            CommandError: the process ended before the broker was ready; the error names the exit code. The output of the
                process is on stderr.
        """
        words = [word for setting in self._settings for word in ("--set", setting)]
        supervised = ("--supervised", f"{self.restarts}:{self.last_end}")
        # A broker has a separate process group: Ctrl-C at a terminal reaches only the supervisor, which then stops the brokers.
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command, *words, *supervised, stdin=PIPE, stdout=PIPE, process_group=0
        )
        ready = await read_ready_words(process, self._printed)
        if "broker" not in ready:
            code = await process.wait()
            raise CommandError(f"{self.name} did not start: it {how_it_ended(code)}", passed_on(code))
        self.ready_words = {name: word for name, word in ready.items() if name not in READY_WORDS}
        if not self.address:
            self.address = ready["broker"]
            # A restarted broker keeps its port, because clients know the port.
            if self._keeps_port:
                self._settings.append(f"listen.port={self.address.rpartition(':')[2]}")
            # A restarted broker keeps the port of its metrics service, because monitoring systems know the port.
            for key, name in self._kept_ports.items():
                if name in self.ready_words:
                    self._settings.append(f"{key}={self.ready_words[name].rpartition(':')[2]}")

    def _printed(self, line: str) -> None:
        log.info("supervisor.printed", "%(process)s printed: %(line)s", process=self.name, line=printable(line))

    def keep(self) -> None:
        """Restart the broker's process from now on whenever the process ends, until :meth:`stop`."""
        self._keeper = asyncio.create_task(self._keep(), name=f"keep {self.name}")

    async def _keep(self) -> None:
        pause_s, longest_s = self._pauses_s
        while True:
            assert self._process is not None
            began_s = self._clock.monotonic_s()
            code = await self._process.wait()
            served_s = self._clock.monotonic_s() - began_s
            if served_s >= STEADY_S:
                pause_s = self._pauses_s[0]
            self.last_end = how_it_ended(code)
            self.restarts += 1
            self.is_down = True
            self._changed()
            log.error(
                "supervisor.ended",
                "%(broker)s %(how)s after %(served_s).0f s; it is started again in %(pause_s)g s",
                broker=self.name,
                how=self.last_end,
                served_s=served_s,
                pause_s=pause_s,
            )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, longest_s)
            try:
                await self.start()
            except (CommandError, OSError) as failure:
                log.error("supervisor.failed", "%(broker)s: %(error)s", broker=self.name, error=failure)
            else:
                self.is_down = False
                self._changed()
                log.warning(
                    "supervisor.serves_again",
                    "%(broker)s serves again at %(address)s, as process %(pid)d",
                    broker=self.name,
                    address=self.address,
                    pid=self._process.pid,
                )

    def tell(self, down: Mapping[str, str]) -> None:
        """Send the broker's process the list of other brokers that are down. The list maps each broker's name to how the
        broker's process ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(down).encode() + b"\n")

    async def stop(self) -> None:
        """Stop the broker's process with SIGTERM. Kill the process if it has not ended after a minute. Idempotent."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._process is not None and not await end_process(self._process, STOP_TIMEOUT_S):
            log.error(
                "supervisor.killed",
                "%(broker)s has not ended within %(timeout_s).0f s and is killed; its store recovers",
                broker=self.name,
                timeout_s=STOP_TIMEOUT_S,
            )


def how_it_ended(code: int) -> str:
    """Return how a broker's process ended, in words that follow the broker's name in a sentence. ``code`` is negative for a
    signal, as in :mod:`subprocess`."""
    if code < 0:
        # A real-time signal has no name in signal.Signals, so the text contains the signal's number instead of a name.
        known = -code in {number.value for number in signal.Signals}
        return f"was ended by {signal.Signals(-code).name if known else f'signal {-code}'}"
    reasons = {ExitCode.OK: "a stop that nobody here asked for", ExitCode.FENCED: "its store is fenced"}
    reason = reasons.get(ExitCode(code)) if code in set(ExitCode) else None
    return f"ended with exit code {code}" + (f" ({reason})" if reason else "")
