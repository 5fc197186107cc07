"""The short way to the commands that serve: words that need no parser.

Typer brings rich and pydantic, which cost a process that serves 12 MiB and a quarter of a second, and then do nothing. So
``flintmq run --store DIR --port 0 --set KEY=VALUE`` and its like are understood here. Everything else is not judged: help,
mistakes, abbreviations go the long way, and get its answers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from flintmq.plugins.cli.logs import LogLevel

PORT_MAX: Final = 65_535


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= PORT_MAX):
        raise ValueError(text)
    return int(text)


_COMMON: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "--config": ("config", Path),
    "-c": ("config", Path),
    "--port": ("port", _port),
    "--host": ("host", str),
    "--set": ("settings", str),
    "--log-level": ("log_level", LogLevel),
}
COMMANDS: Final[dict[str, dict[str, tuple[str, Callable[[str], Any]]]]] = {
    "run": _COMMON
    | {
        "--store": ("store", str),
        "--namesrv-port": ("namesrv_port", _port),
        "--namesrv-host": ("namesrv_host", str),
    },
    "namesrv": _COMMON | {"--kv-path": ("kv_path", str)},
    "broker": _COMMON | {"--store": ("store", str), "--namesrv": ("namesrv", str), "-n": ("namesrv", str)},
}
"""Command → option → the parameter of the function in :mod:`.servers`, and how its text is read."""


def plain_call(words: Sequence[str]) -> Callable[[], None] | None:
    """What the words ask for, or None when somebody else must look at them.

    Args:
        words: the command line without the program's name.
    """
    options = COMMANDS.get(words[0]) if words else None
    if options is None:
        return None
    found: dict[str, Any] = {}
    rest = list(words[1:])
    while rest:
        option, equals, value = rest.pop(0).partition("=")
        if option not in options or (equals and not option.startswith("--")):
            return None
        if not equals:
            if not rest or rest[0].startswith("-"):
                return None
            value = rest.pop(0)
        name, read = options[option]
        try:
            read_value = read(value)
        except ValueError:
            return None
        if name == "settings":
            found.setdefault(name, []).append(read_value)
        else:
            found[name] = read_value
    return functools.partial(_serve, words[0], found)


def _serve(command: str, arguments: dict[str, Any]) -> None:
    from flintmq.plugins.cli import servers

    getattr(servers, command)(**arguments)
