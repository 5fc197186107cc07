"""Runs the console of a broker or a supervisor as a child process, which ends with its parent.

::

    start ─▶ READY ─▶ serves ──ends──▶ pause (1 s, doubled up to 60 s) ─▶ start
                         └─ stop, or the pipe to it breaks ─▶ SIGTERM, SIGKILL after 10 s
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from flintmq.config.errors import ConfigError
from flintmq.core.client_log import printable
from flintmq.core.errors import FlintError
from flintmq.core.io.child_process import end_process, read_ready_words
from flintmq.core.io.clock import SYSTEM_CLOCK
from flintmq.core.log_events import event_log
from flintmq.programs.cli.exits import CommandError, passed_on
from flintmq.programs.cli.log_output import log_arguments

if TYPE_CHECKING:
    from flintmq.config.sections.console import ConsoleSection
    from flintmq.config.sections.models import BrokerConfig

log = event_log("flintmq.console")

PAUSES_S: Final = (1.0, 60.0)
STEADY_S: Final = 60.0
START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 10.0
PROGRAM: Final = (sys.executable, "-m", "flintmq", "console")
NEEDED: Final = ("jinja2", "starlette", "uvicorn")


class ConsoleError(FlintError, CommandError):
    """The console's process did not start. A command that gets this error exits with the console's exit code."""


def check_installed() -> None:
    """Raise ``ConfigError`` if a package of the extra ``console`` is missing. The packages are not imported."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"'console.enable' is true, and {', '.join(missing)} is not installed: "
            "pip install '.[console]' in FlintMQ's folder, "
            "or set console.enable to false",
            key="console.enable",
        )


def check_certificate(settings: ConsoleSection) -> None:
    """Raise ``ConfigError`` if the certificate or the key that the settings name cannot be used."""
    if settings.certificate is None:
        return
    import ssl

    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(settings.certificate, settings.key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the console's certificate {settings.certificate} cannot be used: {error} (console.certificate, console.key)",
            key="console.certificate",
        ) from error


def arguments_of(config: BrokerConfig, name_servers: Sequence[str], store: Path) -> list[str]:
    """Return the command-line arguments of the console's process.

    Args:
        config: the configuration, whose section ``console:`` is translated to arguments.
        name_servers: ``host:port`` of each name server.
        store: the store's folder, which gets the console's files.
    """
    section = config.console
    found = ["-n", ";".join(name_servers), "--host", section.host, "--port", str(section.port), "--supervised"]
    folder = store / "flint" / "console"
    found += ["--audit", str(folder / "audit.jsonl"), "--history", str(folder / "hours.ring"), *_log_arguments()]
    for name in section.host_names:
        found += ["--host-name", name]
    if section.certificate is not None:
        found += ["--certificate", section.certificate]
    if section.key is not None:
        found += ["--key", section.key]
    return found


def _printed(line: str) -> None:
    log.info("supervisor.printed", "%(process)s printed: %(line)s", process="the console", line=printable(line))


def _log_arguments() -> list[str]:
    level = logging.getLogger("flintmq").getEffectiveLevel()
    if logging.getLogger("flintmq").level == logging.NOTSET:
        # If the logger "flintmq" has no level, the broker runs inside another program, which has set up logging.
        # If the broker runs inside another program, the console gets the level at which the other program logs.
        return ["--log-level", "debug" if level <= logging.DEBUG else "info" if level <= logging.INFO else "warning"]
    return log_arguments()


def environment_of(config: BrokerConfig) -> dict[str, str]:
    """Return the environment variables of the console's process.

    The console gets the variables of this process, except an account's access key and secret key. The names of these variables
    begin with ``FLINT_ACCESS`` or ``FLINT_SECRET``. If the cluster requires TLS and ``FLINT_TLS_CA`` is not set,
    ``FLINT_TLS_CA`` is set to the cluster's certificate.
    """
    found = {name: text for name, text in os.environ.items() if not name.startswith(("FLINT_ACCESS", "FLINT_SECRET"))}
    tls = config.listen.tls
    if tls.mode_in_force == "required" and tls.certificate is not None and "FLINT_TLS_CA" not in found:
        found["FLINT_TLS_CA"] = tls.certificate
    return found


def console_of(config: BrokerConfig, name_servers: Sequence[str], store: Path) -> ConsoleChild:
    """Return a console that is not started yet. The console will log at the level of this process.

    Args:
        config: the configuration, with the section ``console:`` and the settings of TLS.
        name_servers: ``host:port`` of each name server through which the console finds brokers.
        store: the store's folder, which gets the console's audit log and its history.

    Raises:
        ConfigError: the extra ``console`` is not installed.
    """
    check_installed()
    return ConsoleChild(arguments_of(config, name_servers, store.absolute()), environment_of(config))


class ConsoleChild:
    """Starts the console's process, and restarts it whenever it ends until :meth:`stop`. Used only on the event loop's thread.

    Args:
        arguments: the arguments of the command.
        environment: the environment variables of the process.
        program: the command.
        pauses_s: the shortest and the longest pause before a restart, in seconds.
        steady_s: time, in seconds, after which a process counts as stable. The pause after a stable process is the shortest.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        program: Sequence[str] = PROGRAM,
        pauses_s: tuple[float, float] = PAUSES_S,
        steady_s: float = STEADY_S,
    ) -> None:
        self._arguments = list(arguments)
        self._environment = dict(environment)
        self._program = tuple(program)
        self._pauses_s = pauses_s
        self._steady_s = steady_s
        self._process: Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self.address = ""
        """Address of the console as ``host:port``; empty until the console is ready for the first time."""
        self.trouble = ""
        """Reason why the console does not serve; empty while the console serves."""

    @property
    def pid(self) -> int | None:
        """Return the console's process id, or None if no process runs."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the console, wait until it serves, and restart it from now on whenever it ends.

        Raises:
            ConsoleError: the console did not start. The output of the console is on stderr.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        self._keeper = asyncio.create_task(self._keep(), name="keep the console")

    async def _start(self) -> None:
        # The console has its own process group, so that Ctrl-C reaches only the broker, which stops the console.
        self._process = process = await asyncio.create_subprocess_exec(
            *self._program, *self._arguments, stdin=PIPE, stdout=PIPE, env=self._environment, process_group=0
        )
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                words = await read_ready_words(process, _printed)
        except TimeoutError as error:
            await end_process(process, STOP_TIMEOUT_S)
            raise ConsoleError(f"the console was not ready within {START_TIMEOUT_S:g} s") from error
        if "console" not in words:
            await end_process(process, STOP_TIMEOUT_S)
            code = process.returncode
            raise ConsoleError(f"the console did not start, exit code {code}; the log says why", passed_on(code))
        if not self.address:
            self.address = words["console"]
            port = self.address.rpartition(":")[2]
            place = self._arguments.index("--port") + 1
            # A restarted console keeps its port, because users may have open pages of the console in browsers.
            self._arguments[place] = port
        self.trouble = ""

    async def _keep(self) -> None:
        pause_s, longest_s = self._pauses_s
        while True:
            assert self._process is not None
            began_s = SYSTEM_CLOCK.monotonic_s()
            code = await self._process.wait()
            if SYSTEM_CLOCK.monotonic_s() - began_s >= self._steady_s:
                pause_s = self._pauses_s[0]
            self.trouble = f"the console ended with exit code {code} and is started again"
            log.error(
                "console.ended",
                "the console ended with exit code %(exit_code)d; it is started again in %(pause_s)g s",
                exit_code=code,
                pause_s=pause_s,
            )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, longest_s)
            try:
                await self._start()
            except (ConsoleError, OSError) as error:
                log.error("console.not_started", "%(error)s", error=error)

    async def stop(self) -> None:
        """End the console's process, and kill it if it has not ended after ten seconds. Idempotent."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        process, self._process = self._process, None
        if process is not None:
            await end_process(process, STOP_TIMEOUT_S)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
