"""``flintmq console``: web pages for any RocketMQ 4.9 cluster."""

from __future__ import annotations

import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import attrs
import click

from flintmq.config.errors import ConfigError
from flintmq.config.sections.console import ConsoleSection
from flintmq.programs.cli import options
from flintmq.programs.cli.connect import checked_name_servers
from flintmq.programs.cli.exits import CommandError, ExitCode, warn
from flintmq.programs.cli.options import DEFAULT_NAME_SERVER, given_access
from flintmq.programs.cli.parser import Command
from flintmq.programs.cli.serving import FenceWatch, serve
from flintmq.remoting.client.access import ACCESS_KEY, SECRET_KEY, SECRET_KEY_FILE, access_of
from flintmq.remoting.server.addresses import is_loopback

_SIGNS = (ACCESS_KEY, SECRET_KEY, SECRET_KEY_FILE)


@click.command(cls=Command)
@options.name_servers
@click.option("--host", default="127.0.0.1", metavar="HOST", help="The address to listen at.")
@options.port("console.port")
@click.option(
    "--host-name", "host_names", multiple=True, metavar="NAME", help="A host name that browsers use. May be repeated."
)
@click.option("--certificate", metavar="FILE", help="Serve HTTPS with this certificate chain (PEM).")
@click.option("--key", metavar="FILE", help="The certificate's private key; by default in the same file.")
@click.option(
    "--audit",
    type=options.PATH,
    metavar="FILE",
    help="The file for the log of changes; by default it is kept in memory.",
)
@click.option(
    "--history",
    type=options.PATH,
    metavar="FILE",
    help="The file for the last day's figures; by default they are kept in memory.",
)
@click.option("--supervised", is_flag=True, hidden=True, help="Set by the parent process; stdin is its pipe.")
@options.log_level("info")
def console(
    host: str,
    port: int | None,
    host_names: tuple[str, ...],
    certificate: str | None,
    key: str | None,
    audit: Path | None,
    history: Path | None,
    supervised: bool,
) -> None:
    """Show and change a cluster in a browser.

    Prints one line when the console is ready: READY console=HOST:PORT pid=PID

    If brokers have access control, users log in with their own access keys. The console does not use the
    account of the command line or of the environment.
    """
    try:
        from flintmq.programs.console.server import ConsoleServer
    except ModuleNotFoundError as error:
        raise CommandError(
            f"the console needs {error.name}: pip install '.[console]' in FlintMQ's folder", ExitCode.USAGE
        ) from error
    said = {**os.environ, **given_access}
    if any(said.pop(name, None) for name in _SIGNS) and not supervised:
        warn("the console does not use the account that was given: people log in with their own")
    try:
        settings = ConsoleSection(host=host, host_names=host_names, certificate=certificate, key=key)
    except ConfigError as error:
        raise CommandError("--key needs --certificate", ExitCode.USAGE) from error
    if port is not None:
        settings = attrs.evolve(settings, port=port)
    name_servers = checked_name_servers(said.get("NAMESRV_ADDR") or DEFAULT_NAME_SERVER)
    ssl_context = access_of(said).ssl_context

    async def start(stack: AsyncExitStack, watch: FenceWatch) -> str:
        if supervised:
            watch.stop_at_end_of(sys.stdin.fileno())
        server = ConsoleServer(name_servers, settings, audit_file=audit, history_file=history, ssl_context=ssl_context)
        await stack.enter_async_context(server)
        if not is_loopback(settings.host):
            await server.warn_if_exposed()
        return f"console={server.address}"

    serve(start, "auto")
