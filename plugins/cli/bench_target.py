"""What the measurements of ``flintmq bench`` measure: a broker that was named, or one started for the measurement."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

from flintmq.plugins.broker.service import run_loop_named
from flintmq.plugins.cli.child import ServedChild
from flintmq.plugins.cli.connect import access, access_to_own, checked_name_servers
from flintmq.plugins.cli.exits import CommandError, ExitCode
from flintmq.remoting.client.access import Access

Target = tuple[str, int | None]
"""A name server, and the process of its broker where that is known."""


@contextlib.contextmanager
def broker_to_measure(namesrv: str | None, pid: int | None, settings: Sequence[str]) -> Iterator[Target]:
    """Yield the broker that was named, else one started with these settings; its store is removed afterwards.

    Raises:
        CommandError: settings were given for a broker that runs already, or the broker does not start.
    """
    if namesrv is not None:
        if settings:
            raise CommandError("--set configures the broker that is started: leave out -n", ExitCode.USAGE)
        yield checked_name_servers(namesrv), pid
        return
    store = Path(tempfile.mkdtemp(prefix="flintmq-bench-"))
    words = [word for setting in settings for word in ("--set", setting)]
    try:
        with ServedChild(["--store", str(store), "--port", "0", "--namesrv-port", "0", *words]) as child:
            yield child.namesrv, child.pid
    finally:
        shutil.rmtree(store, ignore_errors=True)


def access_to_measure(namesrv: str | None, settings: Sequence[str]) -> Access:
    """Return how the load signs and encrypts: as the command line says, or as the started broker asks for."""
    return access() if namesrv is not None else access_to_own(settings)


def runner(loop: str) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Return a function that runs coroutines on the event loop of this name.

    Raises:
        CommandError: there is no such loop, or uvloop is not installed.
    """
    if loop not in ("auto", "asyncio", "uvloop"):
        raise CommandError(f"--loop is auto, asyncio or uvloop, not '{loop[:40]}'", ExitCode.USAGE)
    try:
        return run_loop_named(loop)
    except ImportError as error:
        raise CommandError("uvloop is not installed: pip install 'flintmq[fast]'", ExitCode.USAGE) from error
