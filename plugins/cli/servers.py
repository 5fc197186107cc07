"""What ``flintmq run``, ``flintmq namesrv`` and ``flintmq broker`` do, without the command line.

Nothing here imports typer: a process that serves for months needs no help texts (see :mod:`.plain_words`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.plugins.cli import logs

if TYPE_CHECKING:
    from flintmq.config import LoadedConfig
    from flintmq.config.loading.schema import Role
    from flintmq.plugins.cli.serving import FenceWatch, Start


def run(
    config: Path | None = None,
    store: str | None = None,
    namesrv_port: int | None = None,
    namesrv_host: str | None = None,
    port: int | None = None,
    host: str | None = None,
    settings: Sequence[str] | None = None,
    log_level: logs.LogLevel = logs.LogLevel.INFO,
) -> None:
    """A name server and a broker in one process; returns when both have stopped. Prints READY when they serve."""
    logs.configure(log_level)
    given = {
        "store.path": store,
        "nameserver.port": namesrv_port,
        "nameserver.host": namesrv_host,
        "listen.port": port,
        "listen.host": host,
    }
    loaded = _loaded(config, given, settings)
    if loaded.config.nameserver.kv_path is None:
        loaded = loaded.with_overrides([f"nameserver.kv_path={_store(loaded) / 'flint' / 'kvConfig.json'}"])

    async def start(stack: AsyncExitStack, watch: FenceWatch) -> str:
        from flintmq.plugins.broker.broker import Broker
        from flintmq.plugins.name_server.name_server import NameServer

        name_server = await stack.enter_async_context(NameServer(loaded))
        own = f"{_local(name_server.host)}:{name_server.port}"
        addresses = ";".join((own, *(a for a in loaded.config.namesrv.addresses if a != own)))
        with_own = loaded.with_overrides([f"namesrv.addresses={addresses}"])
        served = await stack.enter_async_context(Broker(with_own, plugins=(watch,)))
        return f"namesrv={_told(name_server.host)}:{name_server.port} broker={served.address} store={_store(loaded)}"

    _serve(start, loaded)


def namesrv(
    config: Path | None = None,
    port: int | None = None,
    host: str | None = None,
    kv_path: str | None = None,
    settings: Sequence[str] | None = None,
    log_level: logs.LogLevel = logs.LogLevel.INFO,
) -> None:
    """A name server; returns when it has stopped. Prints READY when it serves."""
    logs.configure(log_level)
    given = {"nameserver.port": port, "nameserver.host": host, "nameserver.kv_path": kv_path}
    loaded = _loaded(config, given, settings, role="namesrv")

    async def start(stack: AsyncExitStack, watch: FenceWatch) -> str:
        from flintmq.plugins.name_server.name_server import NameServer

        name_server = await stack.enter_async_context(NameServer(loaded))
        return f"namesrv={_told(name_server.host)}:{name_server.port}"

    _serve(start, loaded)


def broker(
    namesrv: str | None = None,
    config: Path | None = None,
    store: str | None = None,
    port: int | None = None,
    host: str | None = None,
    settings: Sequence[str] | None = None,
    log_level: logs.LogLevel = logs.LogLevel.INFO,
) -> None:
    """A broker that registers with name servers; returns when it has stopped. Prints READY when it serves."""
    logs.configure(log_level)
    given = {"namesrv.addresses": namesrv, "store.path": store, "listen.port": port, "listen.host": host}
    loaded = _loaded(config, given, settings)
    if not loaded.config.namesrv.addresses and "NAMESRV_ADDR" in os.environ:
        loaded = loaded.with_overrides([f"namesrv.addresses={os.environ['NAMESRV_ADDR']}"])
    if not loaded.config.namesrv.addresses:
        from flintmq.plugins.cli.exits import warn

        warn("no name server is given (-n HOST:PORT): clients will not find this broker")

    async def start(stack: AsyncExitStack, watch: FenceWatch) -> str:
        from flintmq.plugins.broker.broker import Broker

        served = await stack.enter_async_context(Broker(loaded, plugins=(watch,)))
        return f"broker={served.address} store={_store(loaded)}"

    _serve(start, loaded)


def _loaded(
    config: Path | None, given: Mapping[str, object], settings: Sequence[str] | None, *, role: Role = "broker"
) -> LoadedConfig:
    """Options are settings like any other; a ``--set`` of the same key comes later and counts."""
    from flintmq.config import load_config
    from flintmq.plugins.broker.service import tell_ignored

    overrides = [f"{key}={value}" for key, value in given.items() if value is not None]
    loaded = load_config(config, [*overrides, *(settings or ())], role=role)
    tell_ignored(loaded)
    return loaded


def _serve(start: Start, loaded: LoadedConfig) -> None:
    from flintmq.plugins.cli.serving import serve

    serve(start, loaded.config.listen.loop)


def _store(loaded: LoadedConfig) -> Path:
    return Path(os.path.abspath(loaded.config.store.path))  # noqa: PTH100 - links stay as they were written


def _local(host: str) -> str:
    """Where this process reaches a socket that listens on every address."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _told(host: str) -> str:
    from flintmq.plugins.broker.broker import reachable_host

    return reachable_host(host)
