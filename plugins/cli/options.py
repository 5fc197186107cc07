"""Options that several commands have, each said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flintmq.plugins.cli.exits import CommandError, ExitCode
from flintmq.plugins.cli.logs import LogLevel

DEFAULT_NAME_SERVER = "127.0.0.1:9876"

NameServers = Annotated[
    str | None,
    typer.Option(
        "--namesrv",
        "-n",
        metavar="HOST:PORT[;HOST:PORT]",
        envvar="NAMESRV_ADDR",
        help=f"The name servers; {DEFAULT_NAME_SERVER} by default.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="The configuration: YAML, or RocketMQ's broker.conf."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting, by our name or RocketMQ's. May be repeated."),
]
Store = Annotated[str | None, typer.Option("--store", metavar="DIR", help="The store's folder.")]
Port = Annotated[int | None, typer.Option("--port", metavar="N", min=0, max=65535, help="0 takes a free port.")]
Host = Annotated[str | None, typer.Option("--host", metavar="HOST", help="The address to listen at.")]
Level = Annotated[LogLevel, typer.Option("--log-level", help="What is logged to stderr.")]


def name_servers(given: str | None) -> str:
    """The name servers that were given, or the default."""
    return given or DEFAULT_NAME_SERVER


def timestamp_ms(text: str, option: str) -> int:
    """A time that was given to an option, in milliseconds since 1970. Raises ``CommandError``."""
    from datetime import datetime

    if text.isdecimal():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError as error:
        message = f"{option} is first, last, a time such as 2026-01-31T12:00, or ms since 1970, not '{text[:80]}'"
        raise CommandError(message, ExitCode.USAGE) from error


def timeout_s(text: str, option: str) -> float | None:
    """A duration that was given to an option, in seconds; None for 0. Raises ``CommandError``."""
    from flintmq.config import ConfigError, parse_duration

    try:
        return parse_duration(text, "ms", plain="s") / 1000 or None
    except ConfigError as error:
        raise CommandError(f"{option} {error.message}", ExitCode.USAGE) from error
