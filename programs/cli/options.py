"""Options that several commands of ``flintmq`` share."""

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
raw = click.option("--raw", is_flag=True, help="Print only the bodies, unchanged, each followed by a line feed.")
config_file = click.option(
    "--config", "-c", type=PATH, metavar="FILE", help="The configuration: YAML, or RocketMQ's broker.conf."
)
settings = click.option(
    "--set",
    "settings",
    cls=FileTextOption,
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting, by FlintMQ's or RocketMQ's name. May be repeated.",
)


class SettingOption(FileTextOption):
    """An option that sets a setting; the help shows the setting's default.

    Args:
        setting: the dotted key. The option itself has no default, so that a file or the environment can set the value.
    """

    def __init__(self, *names: Any, setting: str, **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.setting = setting

    def get_help_extra(self, ctx: click.Context) -> click.types.OptionHelpExtra:
        """Return the text in brackets that the help shows for an option, with the default of the option's setting."""
        # The settings are imported only for the help, because their import would slow down the start of every command.
        from flintmq.config.loading.schema import KEYS
        from flintmq.config.loading.show import display
        from flintmq.config.sections.models import BrokerConfig

        key = KEYS[self.setting]
        return {"default": display(key.value_of(BrokerConfig()), key.spec), **super().get_help_extra(ctx)}


store = click.option("--store", cls=SettingOption, setting="store.path", metavar="DIR", help="The store's folder.")


def port(setting: str) -> Callable[[F], F]:
    """Add the option ``--port`` for a setting to a command."""
    return click.option(
        "--port",
        cls=SettingOption,
        setting=setting,
        type=click.IntRange(min=0, max=65535),
        metavar="N",
        help="The port; 0 for a free one.",
    )


def host(setting: str) -> Callable[[F], F]:
    """Add the option ``--host`` for a setting to a command."""
    return click.option("--host", cls=SettingOption, setting=setting, metavar="HOST", help="The address to listen at.")


role = click.option(
    "--role",
    type=click.Choice(["broker", "namesrv"]),
    default="broker",
    help="The server that names like listenPort refer to.",
)

ACCESS: Final = {
    "access-key": ("The account that requests are signed with.", "KEY"),
    "secret-key-file": ("File with the secret key, instead of FLINT_SECRET_KEY.", "FILE"),
    "tls": ("Encrypt, and trust the system's authorities.", None),
    "tls-ca": ("Encrypt, and trust these authorities or certificates (PEM).", "FILE"),
    "tls-certificate": ("The client's certificate, if the server requires one (PEM).", "FILE"),
    "tls-key": ("The certificate's private key; by default in the same file.", "FILE"),
    "tls-insecure": ("Encrypt, and accept any certificate.", None),
}
"""(help, metavar) of each option for a client's credentials and TLS, keyed by the option's name. An option without a metavar is
a flag."""

given_access: Final[dict[str, str]] = {}
"""Values of the options for name servers, credentials and TLS on the command line, keyed by the environment variable with the
same meaning (:mod:`flintmq.remoting.client.access`). A process runs one command at a time;
:func:`flintmq.programs.cli.main.run_command_line` clears these values."""


def access_variable(name: str) -> str:
    """Return the environment variable with the same meaning as an option for name servers, credentials or TLS."""
    return f"FLINT_{name.upper().replace('-', '_')}"


def note_access(ctx: object, parameter: Any, value: Any) -> None:
    """Store the value of an option for name servers, credentials or TLS in :data:`given_access`, unless the value comes from
    the environment."""
    text = "1" if value is True else str(value)
    if value and text != os.environ.get(parameter.envvar):
        given_access[parameter.envvar] = text


def access(command: F) -> F:
    """Add the options for credentials and TLS to a client's command."""
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
    """Add the option ``--namesrv`` and the options for credentials and TLS to a client's command."""
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
    """Return a decorator that adds the options ``--log-level`` and ``--log-format`` to a command. If ``with_file`` is true, the
    decorator also adds ``--log-file``. Logging is configured before the command runs.

    Args:
        default: log level without ``--log-level``.
        with_file: whether the command has the option ``--log-file``.
    """

    def given(command: F) -> F:
        if with_file:
            command = click.option(
                "--log-file",
                type=PATH,
                metavar="FILE",
                expose_value=False,
                is_eager=True,
                callback=_noted(_FILE_KEY),
                help="Log to this file instead of stderr. After a move of the file a new one is started.",
            )(command)
        for option in (
            click.option(
                "--log-format",
                type=click.Choice(["text", "json"]),
                default="text",
                expose_value=False,
                # --log-format is eager, so that click reads it before --log-level, whose callback sets up the log.
                is_eager=True,
                callback=_noted(_FORMAT_KEY),
                help="json: each line is JSON with the event's id and fields.",
            ),
            click.option(
                "--log-level",
                type=click.Choice(["debug", "info", "warning", "error"]),
                default=default,
                expose_value=False,
                callback=_configure_logging,
                help="The lowest level that is logged; debug adds tracebacks.",
            ),
        ):
            command = option(command)
        return command

    return given


_FORMAT_KEY: Final = "flintmq.log_format"
_FILE_KEY: Final = "flintmq.log_file"


def _noted(key: str) -> Callable[[click.Context, object, object], None]:
    """Return a callback that stores an option's value for :func:`_configure_logging`."""

    def note(ctx: click.Context, _parameter: object, value: object) -> None:
        ctx.meta[key] = value

    return note


def _configure_logging(ctx: click.Context, _parameter: object, level: str) -> None:
    log_output.configure(level, is_json=ctx.meta.get(_FORMAT_KEY) == "json", file=ctx.meta.get(_FILE_KEY))


def as_timestamp_ms(_ctx: object, parameter: click.Parameter, text: str | None) -> int | None:
    """Return an option's time in milliseconds since 1970; None if the option is not given."""
    return timestamp_ms(text, parameter.opts[0]) if text else None


def where(text: str, option: str) -> tuple[Where, int]:
    """Return the kind of position at which consuming begins, and a time in milliseconds since 1970, which applies only to the
    kind ``FROM_TIMESTAMP``. Raises CommandError if the text is neither the name of a position nor a time."""
    if text in NAMES and text != FROM_TIMESTAMP:
        return begin_of(text)
    try:
        return FROM_TIMESTAMP, timestamp_ms(text, option)
    except CommandError as error:
        raise CommandError(f"{error}; first and last are accepted as values, too", ExitCode.USAGE) from error


def timestamp_ms(text: str, option: str) -> int:
    """Return an option's time in milliseconds since 1970, with a warning if the local time occurs twice.

    Raises:
        CommandError: the text is not a time; see :func:`flintmq.config.timestamps.parse_timestamp`.
    """
    try:
        found_ms, told = parse_timestamp(text)
    except ConfigError as error:
        raise CommandError(f"{option} {error.message}", ExitCode.USAGE) from error
    if told:
        warn(f"{option} {told}")
    return found_ms


TIME_HELP: Final = "TIME: 2026-01-31, 2026-01-31T12:00, 20260131120000 or ms since 1970."
NEAREST_HELP: Final = (
    f"{TIME_HELP} In each queue the message stored nearest to it is the first; it may be slightly older."
)
since = click.option(
    "--from",
    "since_ms",
    metavar="TIME",
    callback=as_timestamp_ms,
    help=f"Only messages stored at or after TIME. {TIME_HELP}",
)
until = click.option(
    "--until",
    "until_ms",
    metavar="TIME",
    callback=as_timestamp_ms,
    help="Only messages stored before TIME; see --from.",
)


def timeout_s(text: str, option: str) -> float | None:
    """Return an option's duration in seconds; None for 0. Raises CommandError."""
    try:
        return parse_duration(text, "ms", plain="s") / 1000 or None
    except ConfigError as error:
        raise CommandError(f"{option} {error.message}", ExitCode.USAGE) from error


def check_form(as_json: bool, raw: bool) -> None:
    """Raise CommandError if both ``--json`` and ``--raw`` are given."""
    if as_json and raw:
        raise CommandError("give one of: --json, --raw", ExitCode.USAGE)
