"""Options that several commands have."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from flintmq.config.errors import ConfigError
from flintmq.config.timestamps import parse_timestamp
from flintmq.config.units import parse_duration
from flintmq.programs.cli import log_output
from flintmq.programs.cli.exits import CommandError, ExitCode, warn
from flintmq.programs.cli.parser import AccessOption, FileTextOption
from flintmq.remoting.client.consume_from import FROM_TIMESTAMP, NAMES, Where, begin_of

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_NAME_SERVER: Final = "127.0.0.1:9876"
PATH: Final = click.Path(path_type=Path)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
raw = click.option("--raw", is_flag=True, help="Print bodies alone, byte by byte, a line feed behind each: for pipes.")
config_file = click.option(
    "--config", "-c", type=PATH, metavar="FILE", help="The configuration: YAML, or RocketMQ's broker.conf."
)
settings = click.option(
    "--set",
    "settings",
    cls=FileTextOption,
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting, by our name or RocketMQ's. May be repeated.",
)


class SettingOption(FileTextOption):
    """An option that stands for a setting, whose default help shows.

    Args:
        setting: the dotted key; the option itself has no default, so that a file or the environment may set it.
    """

    def __init__(self, *names: Any, setting: str, **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.setting = setting

    def get_help_extra(self, ctx: click.Context) -> click.types.OptionHelpExtra:
        """Return what help says in brackets: the setting's default among it."""
        from flintmq.config.loading.schema import KEYS  # only help needs it
        from flintmq.config.loading.show import display
        from flintmq.config.sections.models import BrokerConfig

        key = KEYS[self.setting]
        return {"default": display(key.value_of(BrokerConfig()), key.spec), **super().get_help_extra(ctx)}


store = click.option("--store", cls=SettingOption, setting="store.path", metavar="DIR", help="The store's folder.")


def port(setting: str) -> Callable[[F], F]:
    """Give a command ``--port``, which stands for a setting."""
    return click.option(
        "--port",
        cls=SettingOption,
        setting=setting,
        type=click.IntRange(min=0, max=65535),
        metavar="N",
        help="0 takes a free port.",
    )


def host(setting: str) -> Callable[[F], F]:
    """Give a command ``--host``, which stands for a setting."""
    return click.option("--host", cls=SettingOption, setting=setting, metavar="HOST", help="The address to listen at.")


role = click.option(
    "--role",
    type=click.Choice(["broker", "namesrv"]),
    default="broker",
    help="Whose listenPort and the like are meant.",
)

ACCESS: Final = {
    "access-key": ("The account that requests are signed with.", "KEY"),
    "secret-key-file": ("Holds its secret key; or FLINT_SECRET_KEY does.", "FILE"),
    "tls": ("Encrypt, and trust the system's authorities.", None),
    "tls-ca": ("Encrypt, and trust these authorities or certificates (PEM).", "FILE"),
    "tls-certificate": ("Our own certificate, where one is asked for (PEM).", "FILE"),
    "tls-key": ("Its private key; else in the same file.", "FILE"),
    "tls-insecure": ("Encrypt, and accept any certificate.", None),
}
"""The options by which a client signs and encrypts. Name → help and metavar; an option without a metavar is a flag."""

given_access: Final[dict[str, str]] = {}
"""What a client's command line says, by the environment variable that says the same: the name servers, and how to sign and
encrypt (:mod:`flintmq.remoting.client.access`).

One process runs one command at a time; :func:`flintmq.programs.cli.main.run_command_line` empties it.
"""


def access_variable(name: str) -> str:
    """Return the environment variable that says the same as an access option."""
    return f"FLINT_{name.upper().replace('-', '_')}"


def note_access(ctx: object, parameter: Any, value: Any) -> None:
    """Note what the command line says; the environment speaks for itself."""
    text = "1" if value is True else str(value)
    if value and text != os.environ.get(parameter.envvar):
        given_access[parameter.envvar] = text


def access(command: F) -> F:
    """Give a client's command the options by which it signs and encrypts."""
    for name, (text, metavar) in reversed(ACCESS.items()):
        command = click.option(
            f"--{name}",
            cls=AccessOption,
            is_flag=metavar is None,
            metavar=metavar,
            envvar=access_variable(name),
            show_envvar=True,
            expose_value=False,
            callback=note_access,
            help=text,
        )(command)
    return command


def name_servers(command: F) -> F:
    """Give a client's command ``--namesrv``, and the options by which it signs and encrypts."""
    return click.option(
        "--namesrv",
        "-n",
        metavar="HOST:PORT[;HOST:PORT]",
        envvar="NAMESRV_ADDR",
        show_envvar=True,
        expose_value=False,
        callback=note_access,
        help=f"The name servers; {DEFAULT_NAME_SERVER} by default.",
    )(access(command))


def log_level(default: str, *, with_file: bool = False) -> Callable[[F], F]:
    """Give a command ``--log-level``, ``--log-format`` and maybe ``--log-file``, which take effect before the command runs."""

    def given(command: F) -> F:
        if with_file:
            command = click.option(
                "--log-file",
                type=PATH,
                metavar="FILE",
                expose_value=False,
                is_eager=True,
                callback=_noted(_FILE_KEY),
                help="Log there instead of to stderr; a file that is moved away is begun again.",
            )(command)
        for option in (
            click.option(
                "--log-format",
                type=click.Choice(["text", "json"]),
                default="text",
                expose_value=False,
                is_eager=True,  # the level, which sets up the log, is looked at after it
                callback=_noted(_FORMAT_KEY),
                help="json: a line of JSON each, with the event's id and fields.",
            ),
            click.option(
                "--log-level",
                type=click.Choice(["debug", "info", "warning", "error"]),
                default=default,
                expose_value=False,
                callback=_configure_logging,
                help="What is logged; debug adds tracebacks.",
            ),
        ):
            command = option(command)
        return command

    return given


_FORMAT_KEY: Final = "flintmq.log_format"
_FILE_KEY: Final = "flintmq.log_file"


def _noted(key: str) -> Callable[[click.Context, object, object], None]:
    """Return what notes an option's value for the one that sets up the log."""

    def note(ctx: click.Context, _parameter: object, value: object) -> None:
        ctx.meta[key] = value

    return note


def _configure_logging(ctx: click.Context, _parameter: object, level: str) -> None:
    log_output.configure(level, is_json=ctx.meta.get(_FORMAT_KEY) == "json", file=ctx.meta.get(_FILE_KEY))


def as_timestamp_ms(_ctx: object, parameter: click.Parameter, text: str | None) -> int | None:
    """Return the time that an option names, in milliseconds since 1970; None where it was not given."""
    return timestamp_ms(text, parameter.opts[0]) if text else None


def where(text: str, option: str) -> tuple[Where, int]:
    """Return where consuming begins, and the time in milliseconds since 1970 where it is one. Raises ``CommandError``."""
    if text in NAMES and text != FROM_TIMESTAMP:
        return begin_of(text)
    try:
        return FROM_TIMESTAMP, timestamp_ms(text, option)
    except CommandError as error:
        raise CommandError(f"{error}; or first, or last", ExitCode.USAGE) from error


def timestamp_ms(text: str, option: str) -> int:
    """Return the time that was given to an option, in milliseconds since 1970; warn of one that comes twice.

    Raises ``CommandError``: see :func:`flintmq.config.timestamps.parse_timestamp`.
    """
    try:
        found_ms, told = parse_timestamp(text)
    except ConfigError as error:
        raise CommandError(f"{option} {error.message}", ExitCode.USAGE) from error
    if told:
        warn(f"{option} {told}")
    return found_ms


TIME_HELP: Final = "TIME: 2026-01-31, 2026-01-31T12:00, 20260131120000 or ms since 1970."
NEAREST_HELP: Final = f"{TIME_HELP} In each queue the message stored nearest to it is the first, be it a little older."
since = click.option(
    "--from", "since_ms", metavar="TIME", callback=as_timestamp_ms, help=f"Stored at or after. {TIME_HELP}"
)
until = click.option(
    "--until", "until_ms", metavar="TIME", callback=as_timestamp_ms, help="Stored before; a TIME as for --from."
)


def timeout_s(text: str, option: str) -> float | None:
    """Return the duration that was given to an option, in seconds; None for 0. Raises ``CommandError``."""
    try:
        return parse_duration(text, "ms", plain="s") / 1000 or None
    except ConfigError as error:
        raise CommandError(f"{option} {error.message}", ExitCode.USAGE) from error


def check_form(as_json: bool, raw: bool) -> None:
    """Raise ``CommandError`` where messages are to be printed in two forms."""
    if as_json and raw:
        raise CommandError("give one of: --json, --raw", ExitCode.USAGE)
