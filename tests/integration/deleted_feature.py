"""Tries a copy of the package that lacks the folder of one feature, in a process of its own: for test_deleted_features.py.

Its arguments are a folder for stores, the feature, and JSON: the request codes of the feature, the settings that ask for it,
and the bench to run. It prints a list of what is wrong, as JSON.
"""

from __future__ import annotations

import importlib
import io
import json
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from bare_wire import Wire, settings

import flintmq

NEEDS_AN_EXTRA = ("programs.console.", "programs.top.", "plugins.spark.")
"""What may be imported only where a package is installed that the tests of features do not need."""


def imported() -> Iterator[str]:
    """Import every module that a program may import."""
    for name in ("programs", "core", "remoting", "dispatchers", "flush", "config", "client"):
        package = importlib.import_module(f"flintmq.{name}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.removeprefix(f"{flintmq.__name__}.").startswith(NEEDS_AN_EXTRA):
                continue
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    yield from ()


def served(root: Path, codes: Sequence[int]) -> Iterator[str]:
    """Start a broker, send and pull a message, and ask for the codes of the feature."""
    from flintmq.core.response_code import ResponseCode

    with flintmq.Broker(settings(root)) as broker:
        wire = Wire(broker.address)
        try:
            if wire.send("T", b"hello").code != ResponseCode.SUCCESS or wire.pull("T").bodies != [b"hello"]:
                yield "a message is not delivered"
            for code in codes:
                answer = wire.ask(code)
                if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    yield f"request code {code} is answered with {answer.code}: {answer.remark}"
        finally:
            wire.close()


def commanded(*arguments: str) -> Iterator[str]:
    """Run a command of the program."""
    from flintmq.programs.cli.main import run_command_line

    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        code = run_command_line(arguments)
    if code:
        yield f"flintmq {' '.join(arguments)} exits with {code}: {output.getvalue()[-2000:]}"


def refused_by_several(root: Path) -> Iterator[str]:
    """Start several brokers with a console beside them, which must be refused with the remedy."""
    from flintmq.programs.cli.main import run_command_line

    settings = ("--store", str(root), "--port", "0", "--namesrv-port", "0", "--console")
    with redirect_stderr(io.StringIO()) as output:
        code = run_command_line(["run", "--brokers", "2", *settings])
    if not code or "'console.enable' needs the plugin 'console'" not in output.getvalue():
        yield f"flintmq run --brokers 2 --console exits with {code}: {output.getvalue()[-2000:]}"


def refused(root: Path, feature: str, setting: str) -> Iterator[str]:
    """Start the servers with a setting of the feature, which must be refused with the remedy."""
    from flintmq.config import ConfigError
    from flintmq.core.errors import PluginError

    key, _, value = setting.partition("=")
    secret = ("ha.secret=0123456789abcdef",) if key in ("broker.role", "ha.enable") else ()  # these need one
    server = flintmq.NameServer if key.startswith("nameserver.") else flintmq.Broker
    try:
        with server(settings(root, *secret, f"{key}={value}")):
            yield f"{key} is not refused"
    except ConfigError as error:
        if error.key != key or feature not in str(error):
            yield f"{key}: the error does not name the feature and the key: {error}"
        elif "disabled_plugins" not in str(error):
            yield f"{key}: the error names no remedy: {error}"
    except PluginError as error:  # a list of names, which parts of any plugin may have
        if key not in str(error) or "there are: " not in str(error):
            yield f"{key}: the error does not name the key and what there is: {error}"


def main() -> None:
    """Print what is wrong, each as one text."""
    root, feature = Path(sys.argv[1]), sys.argv[2]
    codes, asked, bench = json.loads(sys.argv[3])
    store = root / "store"
    steps: list[Callable[[], Iterator[str]]] = [
        imported,
        lambda: served(store, codes),
        lambda: commanded("store", "verify", str(store), "--set", "store.commit_log_file_bytes=1048576"),
        lambda: commanded("bench", *(word.format(store=store) for word in bench)),
        *((lambda one=one: refused(root / "refused", feature, one)) for one in asked),
    ]
    if feature == "console":
        steps.append(lambda: refused_by_several(root / "several"))
    wrong: list[str] = []
    for step in steps:
        try:
            wrong += step()
        except BaseException as error:
            wrong.append("".join(traceback.format_exception(error)[-3:]))
    print(json.dumps(wrong))


if __name__ == "__main__":
    main()
