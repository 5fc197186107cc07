"""``flintmq run``, ``flintmq namesrv`` and ``flintmq broker``: processes that serve until they are told to stop."""

from __future__ import annotations

from typing import Annotated

import typer

from flintmq.plugins.cli import logs, options, servers

NamesrvPort = Annotated[
    int | None, typer.Option("--namesrv-port", metavar="N", min=0, max=65535, help="The name server's; 0 a free one.")
]
NamesrvHost = Annotated[str | None, typer.Option("--namesrv-host", metavar="HOST", help="The name server's address.")]
BrokerNameServers = Annotated[
    str | None,
    typer.Option(
        "--namesrv",
        "-n",
        metavar="HOST:PORT[;HOST:PORT]",
        help="The name servers to register with; NAMESRV_ADDR where neither this nor the configuration names any.",
    ),
]
KvPath = Annotated[
    str | None, typer.Option("--kv-path", metavar="FILE", help="Keeps the key-value configuration; else in memory.")
]


def run(
    config: options.ConfigFile = None,
    store: options.Store = None,
    namesrv_port: NamesrvPort = None,
    namesrv_host: NamesrvHost = None,
    port: options.Port = None,
    host: options.Host = None,
    settings: options.Settings = None,
    log_level: options.Level = logs.LogLevel.INFO,
) -> None:
    """Run a name server and a broker in one process.

    Prints one line when both serve: READY namesrv=HOST:PORT broker=HOST:PORT store=DIR pid=PID
    """
    servers.run(config, store, namesrv_port, namesrv_host, port, host, settings, log_level)


def namesrv(
    config: options.ConfigFile = None,
    port: options.Port = None,
    host: options.Host = None,
    kv_path: KvPath = None,
    settings: options.Settings = None,
    log_level: options.Level = logs.LogLevel.INFO,
) -> None:
    """Run a name server.

    Prints one line when it serves: READY namesrv=HOST:PORT pid=PID
    """
    servers.namesrv(config, port, host, kv_path, settings, log_level)


def broker(
    namesrv: BrokerNameServers = None,
    config: options.ConfigFile = None,
    store: options.Store = None,
    port: options.Port = None,
    host: options.Host = None,
    settings: options.Settings = None,
    log_level: options.Level = logs.LogLevel.INFO,
) -> None:
    """Run a broker that registers with name servers.

    Prints one line when it serves: READY broker=HOST:PORT store=DIR pid=PID
    """
    servers.broker(namesrv, config, store, port, host, settings, log_level)
