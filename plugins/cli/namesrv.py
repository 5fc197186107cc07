"""``flintmq namesrv``: a name server."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import click

from flintmq.plugins.broker.addresses import reachable_host
from flintmq.plugins.cli import logs, options
from flintmq.plugins.cli.parser import Command
from flintmq.plugins.cli.serving import FenceWatch, load, serve
from flintmq.plugins.name_server.name_server import NameServer


@click.command(cls=Command)
@options.config_file
@options.port
@options.host
@click.option("--kv-path", metavar="FILE", help="Keeps the key-value configuration; else in memory.")
@options.settings
@options.level
def namesrv(
    config: Path | None,
    port: int | None,
    host: str | None,
    kv_path: str | None,
    settings: tuple[str, ...],
    log_level: logs.LogLevel,
) -> None:
    """Run a name server.

    Prints one line when it serves: READY namesrv=HOST:PORT pid=PID
    """
    logs.configure(log_level)
    given = {"nameserver.port": port, "nameserver.host": host, "nameserver.kv_path": kv_path}
    loaded = load(config, given, settings, role="namesrv")

    async def start(stack: AsyncExitStack, watch: FenceWatch) -> str:
        name_server = await stack.enter_async_context(NameServer(loaded))
        return f"namesrv={reachable_host(name_server.host)}:{name_server.port}"

    serve(start, loaded.config.listen.loop)
