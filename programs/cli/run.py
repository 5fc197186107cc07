"""``flintmq run``, ``namesrv`` and ``broker`` start a name server and a broker, together in one process or alone."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from flintmq.config.loading.schema import aliases
from flintmq.core.broker.address import host_port
from flintmq.programs.cli import log_output, options
from flintmq.programs.cli.exits import warn
from flintmq.programs.cli.options import SettingOption
from flintmq.programs.cli.parser import Command, uncollected
from flintmq.programs.cli.serving import (
    FenceWatch,
    Start,
    load,
    ready_word,
    serve,
    store_folder,
    with_environment,
    with_name_server,
)
from flintmq.programs.cli.serving_output import SERVING_OUTPUT
from flintmq.remoting.server.addresses import reachable_host

if TYPE_CHECKING:
    from flintmq.config import LoadedConfig
    from flintmq.programs.name_server.name_server import NameServer
    from flintmq.programs.supervisor.supervised import Supervised

F = TypeVar("F", bound=Callable[..., Any])

OF_EACH: Final = frozenset(
    {
        "broker.name", "store.path", "namesrv.addresses", "listen.port", "listen.ha_port",
        "store.commit_log_paths", "store.read_only_commit_log_paths",
    }
)  # fmt: skip
"""Keys of the settings that differ between the brokers of one machine and that also have a RocketMQ name."""
BROKERS_MAX: Final = 26
"""Maximum number of brokers of one ``flintmq run``; the name of each broker ends with a letter of the alphabet."""


def serving_options(section: str) -> Callable[[F], F]:
    """Add the options that ``run``, ``namesrv`` and ``broker`` share to a command.

    Args:
        section: the section of the settings ``host`` and ``port``.
    """

    def given(command: F) -> F:
        for option in (
            options.log_level("info", with_file=True),
            options.settings,
            options.host(f"{section}.host"),
            options.port(f"{section}.port"),
            options.config_file,
        ):
            command = option(command)
        return command

    return given


def usable_cores(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Return the number of cores that this process may use, by its CPU affinity and by the quota of its container or systemd
    unit."""
    count = len(os.sched_getaffinity(0))
    # The CPU quota is ignored if this process has no cgroup of version 2, or if the quota is "max", which means unlimited.
    with contextlib.suppress(OSError, ValueError):
        group = own.read_text().rpartition("0::/")[2].strip()
        quota, period = (cgroups / group / "cpu.max").read_text().split()
        count = min(count, max(1, int(quota) // int(period)))
    return count


class BrokerCount(click.ParamType[int]):
    """The type of an option for a number of brokers; ``auto`` means one broker for each core that this process may use."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        count = usable_cores() if text == "auto" else int(text) if text.isdecimal() else 0
        if text == "auto":
            count = min(count, BROKERS_MAX)
        if not 1 <= count <= BROKERS_MAX:
            self.fail(f"'{value}' is neither auto nor a number from 1 to {BROKERS_MAX}", param, ctx)
        return count


@click.command(cls=Command)
@serving_options("listen")
@options.store
@click.option(
    "--namesrv-port",
    cls=SettingOption,
    setting="nameserver.port",
    type=click.IntRange(min=0, max=65535),
    metavar="N",
    help="The name server's port; 0 for a free one.",
)
@click.option(
    "--namesrv-host",
    cls=SettingOption,
    setting="nameserver.host",
    metavar="HOST",
    help="The name server's address.",
)
@click.option(
    "--brokers",
    "count",
    type=BrokerCount(),
    metavar="N|auto",
    help="Run N brokers in separate processes; auto: one per core. By default one broker runs in this process.",
)
@click.option(
    "--console", "with_console", is_flag=True, help="Also run the web console; the same as console.enable=true."
)
def run(
    config: Path | None,
    namesrv_port: int | None,
    namesrv_host: str | None,
    settings: tuple[str, ...],
    count: int | None,
    with_console: bool,
    **broker: Any,
) -> None:
    """Run a name server and a broker in one process.

    Prints one line when name server and broker are ready: READY namesrv=HOST:PORT broker=HOST:PORT store=DIR pid=PID. Addresses
    of other enabled services come before pid=: metrics=HOST:PORT, console=HOST:PORT. Words are separated by blanks; blanks and
    percent signs in DIR are written as in URLs (%20, %25).

    With --brokers, the line has brokers=HOST:PORT,HOST:PORT instead of broker=. If each broker offers a further service, the
    line has a list of addresses for it as well, such as metrics=HOST:PORT,HOST:PORT. Each broker has its store in a subfolder
    of --store. The ports of the brokers differ by ten. A broker that ends is restarted.
    """
    with uncollected():
        from flintmq.programs.broker.broker import Broker
        from flintmq.programs.name_server.name_server import NameServer

    given = {"nameserver.port": namesrv_port, "nameserver.host": namesrv_host, **_of_broker(**broker)}
    if with_console:
        given["console.enable"] = "true"
    loaded = load(config, given, settings)
    if loaded.config.nameserver.kv_path is None:
        loaded = loaded.with_overrides([f"nameserver.kv_path={store_folder(loaded) / 'flint' / 'kvConfig.json'}"])
    if count is not None:
        serve(_several(loaded, count, _as_arguments(config, given, settings)), loaded.config.listen.loop)
        return

    _check_single(loaded)

    async def start(stack: AsyncExitStack, watch: FenceWatch) -> str:
        name_server = await stack.enter_async_context(NameServer(loaded))
        with_own = with_name_server(loaded, _reached_from_here(name_server))
        broker = await stack.enter_async_context(Broker(with_own, plugins=(watch, SERVING_OUTPUT)))
        own = f"broker={broker.address} store={ready_word(store_folder(loaded))}"
        return f"{_told(name_server)} {own}{_as_words(broker.ready_words)}"

    serve(start, loaded.config.listen.loop)


def _check_single(loaded: LoadedConfig) -> None:
    """Raise StoreError if a folder contains the stores of several brokers."""
    with uncollected():
        from flintmq.programs.supervisor.plan import check_single

    check_single(store_folder(loaded), loaded.config.broker.name)


def _several(loaded: LoadedConfig, count: int, arguments: Sequence[str]) -> Start:
    """Return the function that starts a name server in this process and ``count`` brokers in separate processes."""
    with uncollected():
        from flintmq.programs.name_server.name_server import NameServer
        from flintmq.programs.supervisor.plan import left_out, plan_brokers
        from flintmq.programs.supervisor.supervisor import Supervisor

    folder = store_folder(loaded)

    async def start(stack: AsyncExitStack, _watch: FenceWatch) -> str:
        name_server = await stack.enter_async_context(NameServer(loaded))
        plans = plan_brokers(loaded, count, folder, _reached_from_here(name_server))
        for name in left_out(folder, plans):
            warn(f"{folder / name} holds messages that nobody can consume while its broker is not started")
        console = None
        if loaded.config.console.enable:
            _check_console(loaded)
            from flintmq.plugins.console.child import console_of

            console = console_of(loaded.config, [_reached_from_here(name_server)], folder)
        supervisor = await stack.enter_async_context(Supervisor(plans, arguments))
        words = dict(supervisor.ready_words)
        if console is not None:
            words["console"] = (await stack.enter_async_context(console)).address
        addresses = ",".join(broker.address for broker in supervisor.brokers)
        return f"{_told(name_server)} brokers={addresses} store={ready_word(folder)}{_as_words(words)}"

    return start


def _check_console(loaded: LoadedConfig) -> None:
    """Raise ConfigError if ``console.enable`` is set and the plugin ``console`` is not loaded."""
    from flintmq.plugins.builtin import BROKER_ONLY
    from flintmq.programs.broker.loading import missing

    if "console" in loaded.config.disabled_plugins or "console" not in BROKER_ONLY:
        raise missing("console.enable", "console")


def _as_arguments(config: Path | None, given: Mapping[str, object], settings: Sequence[str]) -> list[str]:
    """Return the arguments with which ``flintmq broker`` has the same configuration and log as this process."""
    file = () if config is None else ("-c", str(config))
    overrides = [f"{key}={value}" for key, value in given.items() if value is not None]
    settings = list(map(_by_our_name, settings))
    return [*log_output.log_arguments(), *file, *(word for each in (*overrides, *settings) for word in ("--set", each))]


def _by_our_name(setting: str) -> str:
    """Return a ``--set`` option with RocketMQ's key replaced by FlintMQ's key, if each broker needs a different value of the
    setting.

    ``flintmq run --brokers`` adds a second ``--set`` option for the same setting to the command of each broker. The second
    option has FlintMQ's key. If the first option had RocketMQ's key, the broker would get the setting under two keys, which is
    an error.
    """
    name, _, value = setting.partition("=")
    keys = aliases().get(name, ())
    return f"{keys[0]}={value}" if keys and keys[0] in OF_EACH else setting


@click.command(cls=Command)
@serving_options("nameserver")
@click.option(
    "--kv-path", metavar="FILE", help="File for the key-value configuration; by default it is kept in memory."
)
def namesrv(
    config: Path | None, port: int | None, host: str | None, kv_path: str | None, settings: tuple[str, ...]
) -> None:
    """Run a name server.

    Prints one line when the name server is ready: READY namesrv=HOST:PORT pid=PID
    """
    with uncollected():
        from flintmq.programs.name_server.name_server import NameServer

    given = {"nameserver.port": port, "nameserver.host": host, "nameserver.kv_path": kv_path}
    loaded = load(config, given, settings, role="namesrv")

    async def start(stack: AsyncExitStack, watch: FenceWatch) -> str:
        name_server = await stack.enter_async_context(NameServer(loaded))
        return _told(name_server)

    serve(start, loaded.config.listen.loop)


@click.command(cls=Command)
@serving_options("listen")
@click.option(
    "--namesrv",
    "-n",
    metavar="HOST:PORT[;HOST:PORT]",
    help="The name servers to register with; by default those of the configuration, then NAMESRV_ADDR.",
)
@options.store
@click.option("--supervised", metavar="RESTARTS:REASON", hidden=True, help="Set by a supervisor; stdin is its pipe.")
def broker(
    config: Path | None, namesrv: str | None, settings: tuple[str, ...], supervised: str | None, **broker: Any
) -> None:
    """Run a broker that registers with name servers.

    Prints one line when the broker is ready: READY broker=HOST:PORT store=DIR pid=PID. Addresses of other enabled services come
    before pid=: metrics=HOST:PORT.
    """
    with uncollected():
        from flintmq.programs.broker.broker import Broker

    loaded = with_environment(load(config, {"namesrv.addresses": namesrv, **_of_broker(**broker)}, settings))
    if not loaded.config.namesrv.addresses:
        warn("no name server is given (-n HOST:PORT): clients will not find this broker")

    _check_single(loaded)
    observed: tuple[Supervised, ...] = ()
    if supervised is not None:
        with uncollected():
            from flintmq.programs.supervisor.supervised import Supervised

        observed = (Supervised.parse(supervised),)
        log_output.name_in_log(loaded.config.broker.name)

    async def start(stack: AsyncExitStack, watch: FenceWatch) -> str:
        for one in observed:
            watch.stop_at_end_of(sys.stdin.fileno(), one.told)
        served = await stack.enter_async_context(Broker(loaded, plugins=(watch, SERVING_OUTPUT, *observed)))
        return f"broker={served.address} store={ready_word(store_folder(loaded))}{_as_words(served.ready_words)}"

    serve(start, loaded.config.listen.loop)


def _of_broker(store: str | None, port: int | None, host: str | None) -> dict[str, object]:
    """Return the values of the options ``--store``, ``--port`` and ``--host``, keyed by the setting that each option sets."""
    return {"store.path": store, "listen.port": port, "listen.host": host}


def _as_words(words: Mapping[str, str]) -> str:
    """Return the words that services add to the line ``READY …`` of the process, each as ``name=word`` after a blank."""
    return "".join(f" {name}={word}" for name, word in words.items())


def _told(name_server: NameServer) -> str:
    """Return the word ``namesrv=HOST:PORT`` of the line ``READY …``, which the process prints when it is ready."""
    return f"namesrv={host_port(reachable_host(name_server.host), name_server.port)}"


def _reached_from_here(name_server: NameServer) -> str:
    """Return the address at which processes of this machine reach a name server, even if the name server listens on all
    interfaces."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name_server.host, name_server.host)
    return host_port(host, name_server.port)
