"""``flintmq run``, ``namesrv`` and ``broker``: a name server and a broker, in one process or apart."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import click

from flintmq.plugins.broker.addresses import reachable_host
from flintmq.plugins.cli import options
from flintmq.plugins.cli.exits import warn
from flintmq.plugins.cli.parser import Command, uncollected
from flintmq.plugins.cli.serving import FenceWatch, load, serve, store_folder

F = TypeVar("F", bound=Callable[..., Any])


def serving_options(command: F) -> F:
    """Give a command the options of everything that serves."""
    for option in (options.log_level("info"), options.settings, options.host, options.port, options.config_file):
        command = option(command)
    return command


@click.command(cls=Command)
@serving_options
@options.store
@click.option(
    "--namesrv-port", type=click.IntRange(min=0, max=65535), metavar="N", help="The name server's; 0 a free one."
)
@click.option("--namesrv-host", metavar="HOST", help="The name server's address.")
def run(
    config: Path | None, namesrv_port: int | None, namesrv_host: str | None, settings: tuple[str, ...], **broker: Any
) -> None:
    """Run a name server and a broker in one process.

    Prints one line when both serve: READY namesrv=HOST:PORT broker=HOST:PORT store=DIR pid=PID
    """
    with uncollected():
        from flintmq.plugins.broker.broker import Broker
        from flintmq.plugins.name_server.name_server import NameServer

    given = {"nameserver.port": namesrv_port, "nameserver.host": namesrv_host, **_of_broker(**broker)}
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


@click.command(cls=Command)
@serving_options
@click.option("--kv-path", metavar="FILE", help="Keeps the key-value configuration; else in memory.")
def namesrv(
    config: Path | None, port: int | None, host: str | None, kv_path: str | None, settings: tuple[str, ...]
) -> None:
    """Run a name server.

    Prints one line when it serves: READY namesrv=HOST:PORT pid=PID
    """
    with uncollected():
        from flintmq.plugins.name_server.name_server import NameServer

    given = {"nameserver.port": port, "nameserver.host": host, "nameserver.kv_path": kv_path}
    loaded = load(config, given, settings, role="namesrv")

    async def start(stack: AsyncExitStack, watch: FenceWatch) -> str:
        name_server = await stack.enter_async_context(NameServer(loaded))
        return f"namesrv={reachable_host(name_server.host)}:{name_server.port}"

    serve(start, loaded.config.listen.loop)


@click.command(cls=Command)
@serving_options
@click.option(
    "--namesrv",
    "-n",
    metavar="HOST:PORT[;HOST:PORT]",
    help="The name servers to register with; NAMESRV_ADDR where neither this nor the configuration names any.",
)
@options.store
def broker(config: Path | None, namesrv: str | None, settings: tuple[str, ...], **broker: Any) -> None:
    """Run a broker that registers with name servers.

    Prints one line when it serves: READY broker=HOST:PORT store=DIR pid=PID
    """
    with uncollected():
        from flintmq.plugins.broker.broker import Broker

    loaded = load(config, {"namesrv.addresses": namesrv, **_of_broker(**broker)}, settings)
    if not loaded.config.namesrv.addresses and "NAMESRV_ADDR" in os.environ:
        loaded = loaded.with_overrides([f"namesrv.addresses={os.environ['NAMESRV_ADDR']}"])
    if not loaded.config.namesrv.addresses:
        warn("no name server is given (-n HOST:PORT): clients will not find this broker")

    async def start(stack: AsyncExitStack, watch: FenceWatch) -> str:
        served = await stack.enter_async_context(Broker(loaded, plugins=(watch,)))
        return f"broker={served.address} store={store_folder(loaded)}"

    serve(start, loaded.config.listen.loop)


def _of_broker(store: str | None, port: int | None, host: str | None) -> dict[str, object]:
    """Return the settings that a broker's options stand for."""
    return {"store.path": store, "listen.port": port, "listen.host": host}


def _reached_from_here(host: str) -> str:
    """Return where this process reaches a socket that listens on every address."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
