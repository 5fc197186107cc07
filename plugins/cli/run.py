"""``flintmq run``: a name server and a broker in one process."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import click

from flintmq.plugins.broker.addresses import reachable_host
from flintmq.plugins.broker.broker import Broker
from flintmq.plugins.cli import logs, options
from flintmq.plugins.cli.parser import Command
from flintmq.plugins.cli.serving import FenceWatch, load, serve, store_folder
from flintmq.plugins.name_server.name_server import NameServer


@click.command(cls=Command)
@options.config_file
@options.store
@click.option(
    "--namesrv-port", type=click.IntRange(min=0, max=65535), metavar="N", help="The name server's; 0 a free one."
)
@click.option("--namesrv-host", metavar="HOST", help="The name server's address.")
@options.port
@options.host
@options.settings
@options.level
def run(
    config: Path | None,
    store: str | None,
    namesrv_port: int | None,
    namesrv_host: str | None,
    port: int | None,
    host: str | None,
    settings: tuple[str, ...],
    log_level: logs.LogLevel,
) -> None:
    """Run a name server and a broker in one process.

    Prints one line when both serve: READY namesrv=HOST:PORT broker=HOST:PORT store=DIR pid=PID
    """
    logs.configure(log_level)
    given = {
        "store.path": store,
        "nameserver.port": namesrv_port,
        "nameserver.host": namesrv_host,
        "listen.port": port,
        "listen.host": host,
    }
    loaded = load(config, given, settings)
    if loaded.config.nameserver.kv_path is None:
        loaded = loaded.with_overrides([f"nameserver.kv_path={store_folder(loaded) / 'flint' / 'kvConfig.json'}"])

    async def start(stack: AsyncExitStack, watch: FenceWatch) -> str:
        name_server = await stack.enter_async_context(NameServer(loaded))
        own = f"{_reached_from_here(name_server.host)}:{name_server.port}"
        addresses = ";".join((own, *(address for address in loaded.config.namesrv.addresses if address != own)))
        with_own = loaded.with_overrides([f"namesrv.addresses={addresses}"])
        broker = await stack.enter_async_context(Broker(with_own, plugins=(watch,)))
        listens = f"{reachable_host(name_server.host)}:{name_server.port}"
        return f"namesrv={listens} broker={broker.address} store={store_folder(loaded)}"

    serve(start, loaded.config.listen.loop)


def _reached_from_here(host: str) -> str:
    """Return where this process reaches a socket that listens on every address."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
