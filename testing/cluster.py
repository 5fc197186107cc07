"""Several brokers and one name server inside a test: masters, and slaves that copy the masters."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from flintmq.config import load_config
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.programs.name_server.name_server import NameServer
from flintmq.remoting.client.message import MessageExt
from flintmq.testing.embedded import SETTINGS, EmbeddedBroker

LAYOUT: Final[Mapping[str, int]] = {"broker-a": 1, "broker-b": 0}
"""Number of slaves of each master, keyed by the broker's name. By default there are two masters, and the first master has a
slave."""

REPLICATION: Final = ("ha.enable=true", "ha.reconnect_interval_ms=50", "ha.sync_interval_ms=500")
"""Settings with which a slave connects again soon after the connection to its master is restored."""


class EmbeddedCluster:
    """Brokers and a name server in this process, from ``__enter__`` to ``__exit__``. Thread-safe.

    ``cluster["broker-a"]`` is a master, ``cluster.slaves("broker-a")`` are the slaves that copy this master. Each is an
    :class:`~flintmq.testing.embedded.EmbeddedBroker`: a test can stop and start each broker separately, and script faults of
    one broker.

    Args:
        folder: the parent of the stores' folders.
        layout: the masters' names, each with its number of slaves.
        settings: ``key=value``, for all brokers; ``broker.role=sync_master`` applies to the masters only.
        clock: the brokers' clock.
        plugins: plugin objects besides the installed ones, for all brokers.
        with_faults: see :class:`~flintmq.testing.embedded.EmbeddedBroker`.

    Raises (at ``__enter__``):
        ConfigError, PluginError, StoreError, RemotingError: a broker does not start; the brokers that had started are stopped.
    """

    def __init__(
        self,
        folder: Path,
        *,
        layout: Mapping[str, int] = LAYOUT,
        settings: Iterable[str] = (),
        clock: Clock = SYSTEM_CLOCK,
        plugins: Iterable[object] = (),
        with_faults: bool = False,
    ) -> None:
        replication = (*REPLICATION, f"ha.secret={secrets.token_hex(16)}") if any(layout.values()) else ()
        settings = (*replication, *settings)
        plugins = tuple(plugins)
        self.clock = clock
        self.name_server = NameServer(load_config(None, (*SETTINGS, *settings), {}))
        self._held = contextlib.ExitStack()
        self._masters: dict[str, EmbeddedBroker] = {}
        self._slaves: dict[str, list[EmbeddedBroker]] = {}
        for name, slaves in layout.items():
            self._masters[name] = EmbeddedBroker(
                folder / name,
                settings=(*settings, f"broker.name={name}"),
                clock=clock,
                plugins=plugins,
                with_faults=with_faults,
                name_server=self.name_server,
            )
            self._slaves[name] = [
                EmbeddedBroker(
                    folder / f"{name}-{number}",
                    settings=(*settings, f"broker.name={name}", "broker.role=slave", f"broker.id={number}"),
                    clock=clock,
                    plugins=plugins,
                    with_faults=with_faults,
                    name_server=self.name_server,
                    master=self._masters[name],
                )
                for number in range(1, slaves + 1)
            ]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            held.enter_context(self.name_server)
            for name, master in self._masters.items():
                held.enter_context(master)
                for slave in self._slaves[name]:
                    held.enter_context(slave)
            self._held = held.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._held.__exit__(*exception)

    def __getitem__(self, name: str) -> EmbeddedBroker:
        """Return the cluster's master that has the given broker name. Raises ``KeyError``."""
        return self._masters[name]

    def __iter__(self) -> Iterator[EmbeddedBroker]:
        """Iterate over the masters of the cluster."""
        return iter(self._masters.values())

    def slaves(self, name: str) -> tuple[EmbeddedBroker, ...]:
        """Return the slaves of a master of the cluster. Raises ``KeyError``."""
        return tuple(self._slaves[name])

    @property
    def name_server_address(self) -> str:
        """The address ``host:port`` of the cluster's name server, for clients."""
        return self.name_server.address

    def create_topic(self, name: str, queue_nums: int = 4) -> str:
        """Create a topic on every running master, and return the topic's name once the name server knows all queues of the
        topic.

        Raises:
            RefusedError: a broker refuses the topic.
            TimeoutError: the name server did not learn of the topic within 5 s.
        """
        for master in self._masters.values():
            if master.runs:
                master.create_topic(name, queue_nums)
        return name

    def messages(self, topic: str) -> list[MessageExt]:
        """Return the messages of a topic that consumers can see at any running master, master after master."""
        return [message for master in self if master.runs for message in master.messages(topic)]
