"""``flintmq broker``: a broker that registers with name servers."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path

import click

from flintmq.plugins.broker.broker import Broker
from flintmq.plugins.cli import logs, options
from flintmq.plugins.cli.exits import warn
from flintmq.plugins.cli.parser import Command
from flintmq.plugins.cli.serving import FenceWatch, load, serve, store_folder


@click.command(cls=Command)
@click.option(
    "--namesrv",
    "-n",
    metavar="HOST:PORT[;HOST:PORT]",
    help="The name servers to register with; NAMESRV_ADDR where neither this nor the configuration names any.",
)
@options.config_file
@options.store
@options.port
@options.host
@options.settings
@options.level
def broker(
    namesrv: str | None,
    config: Path | None,
    store: str | None,
    port: int | None,
    host: str | None,
    settings: tuple[str, ...],
    log_level: logs.LogLevel,
) -> None:
    """Run a broker that registers with name servers.

    Prints one line when it serves: READY broker=HOST:PORT store=DIR pid=PID
    """
    logs.configure(log_level)
    given = {"namesrv.addresses": namesrv, "store.path": store, "listen.port": port, "listen.host": host}
    loaded = load(config, given, settings)
    if not loaded.config.namesrv.addresses and "NAMESRV_ADDR" in os.environ:
        loaded = loaded.with_overrides([f"namesrv.addresses={os.environ['NAMESRV_ADDR']}"])
    if not loaded.config.namesrv.addresses:
        warn("no name server is given (-n HOST:PORT): clients will not find this broker")

    async def start(stack: AsyncExitStack, watch: FenceWatch) -> str:
        served = await stack.enter_async_context(Broker(loaded, plugins=(watch,)))
        return f"broker={served.address} store={store_folder(loaded)}"

    serve(start, loaded.config.listen.loop)
