"""The excerpts of docs/internals/extending.md do with brokers what the page says."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import flintmq
from flintmq import Message, RefusedError, hookimpl
from flintmq.client import MessageQueue, PullConsumer
from flintmq.core.broker.api import SLAVE, SYNC_MASTER, BrokerApi, Found, Wanted
from flintmq.protocol import RequestCode, ResponseCode
from flintmq.testing.clock import ManualClock

PAGE: Final = Path(str(flintmq.__file__)).parent / "docs" / "internals" / "extending.md"
QUEUE: Final = MessageQueue("broker-a", 0, "Orders")


def excerpt(folder: Path, name: str) -> ModuleType:
    """Return a module that consists of the page's excerpt with a class of this name."""
    (text,) = (
        one
        for one in re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
        if f"\nclass {name}:" in one
    )
    path = folder / f"{name.lower()}_excerpt.py"
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


class Plugin:
    """Registers a service and an authenticator that refuses sends to one topic."""

    plugin_name = "extension"

    def __init__(self, make: Callable[[BrokerApi], object] | None) -> None:
        self._make = make

    @hookimpl
    def flintmq_services(self, register: Any) -> None:
        register("extension", lambda context: self._make and self._make(context.api))

    @hookimpl
    def flintmq_authenticators(self, register: Any) -> None:
        register("deny", lambda _context: self)

    def authenticate(self, caller: Any) -> None:
        if caller.code == RequestCode.SEND_MESSAGE and caller.ext_fields["topic"] == "Secret":
            raise RefusedError(ResponseCode.NO_PERMISSION, "not yours", reason="acl.denied")


def run(
    folder: Path,
    live: Callable[[flintmq.Broker], Awaitable[None]],
    make: Callable[[BrokerApi], object] | None = None,
    *settings: str,
    **options: Any,
) -> None:
    """Run a broker with a service."""
    given = [f"store.path={folder / 'store'}", "topics.default_queue_nums=1", "authenticators=[deny]", *settings]

    async def body() -> None:
        loaded = flintmq.load_config(None, given, {})
        async with flintmq.Broker(loaded, plugins=[Plugin(make)], **options) as broker, asyncio.timeout(20):
            await live(broker)

    asyncio.run(body())


def test_the_documented_example_of_a_connection_class_stores_messages_and_answers_held_pulls(tmp_path: Path) -> None:
    """The pull that waits is answered by a put; one whose client has left is not."""
    connection_type = excerpt(tmp_path, "Connection").Connection

    async def live(broker: flintmq.Broker) -> None:
        api = broker.api
        connection = connection_type(api, "10.0.0.1", "10.0.0.1:4321", bytes([10, 0, 0, 1, 0, 0, 16, 225]))
        connection.check(RequestCode.SEND_MESSAGE, {"topic": "Orders"})
        with pytest.raises(RefusedError, match="not yours"):
            connection.check(RequestCode.SEND_MESSAGE, {"topic": "Secret"})
        assert await connection.put("Orders", b"one") == (0, 0)
        answers = list[list[bytes]]()
        connection.pull(Wanted("Orders", 0, 0, "G", connection), 20_000, answers.append)
        connection.pull(Wanted("Orders", 0, 1, "G", connection), 20_000, answers.append)
        assert await connection.put("Orders", b"two") == (0, 1)
        assert answers == [[b"one"], [b"two"]]
        connection.pull(Wanted("Orders", 0, 2, "G", connection), 20_000, answers.append)
        assert len(api.outlet.held) == 1
        connection.closed()
        assert len(api.outlet.held) == 0

    run(tmp_path, live, None, "listen.enable=false")


def test_the_archive_example_in_the_documentation_delivers_messages_that_retention_has_deleted(tmp_path: Path) -> None:
    """The client gets each message once, and each object is fetched once."""
    archive_type = excerpt(tmp_path, "Archive").Archive
    objects: dict[tuple[str, int, int], list[bytes]] = {}
    fetched: list[int] = []

    async def get(key: tuple[str, int, int]) -> list[bytes] | None:
        fetched.append(key[2])
        await asyncio.sleep(0)
        return objects.get(key)

    async def live(broker: flintmq.Broker) -> None:
        api = broker.api
        await broker.put([Message("Orders", b"%d" % number) for number in range(10)])
        found = api.outlet.read("Orders", 0, 0)
        assert isinstance(found, Found)
        messages = [*found.messages()]
        for one in messages[:8]:
            piece = bytes(api.log.slice(one.commit_log_offset_bytes, one.size_bytes) or b"")
            objects.setdefault(("Orders", 0, one.queue_offset // 4 * 4), []).append(piece)
        # Retention raises the minimum of a queue in this way when it has deleted a file of the log.
        queue: Any = api.log.queues["Orders", 0]
        queue.correct_min_offset(messages[7].commit_log_offset_bytes)
        got, position = list[bytes](), 0
        async with PullConsumer("G", broker) as consumer:
            while position < 10:
                pulled = await consumer.pull(QUEUE, position)
                got += [one.body for one in pulled.messages]
                position = pulled.next_begin_queue_offset
        assert got == [b"%d" % number for number in range(10)]
        assert fetched == [0, 4]

    run(tmp_path, live, lambda api: archive_type(api, get), "listen.enable=false")


def test_a_broker_with_the_documented_arbiter_is_the_master_only_while_it_holds_the_lease(
    tmp_path: Path,
) -> None:
    """Roles are numbered by the lease; before the lease ends, the broker has stepped down."""
    arbiter_type = excerpt(tmp_path, "Arbiter").Arbiter
    clock, terms = ManualClock(), [0, 3, 3, 5]

    async def hold(_log_end_bytes: int) -> int:
        return terms.pop(0)

    async def live(broker: flintmq.Broker) -> None:
        role, arbiter = broker.api.role, broker.api.part(arbiter_type)
        seen = [(role.kind, role.broker_id, role.epoch)]

        async def ask(after_ms: int) -> None:
            await arbiter.ask()
            clock.advance_ms(after_ms)
            arbiter.check()
            seen.append((role.kind, role.broker_id, role.epoch))

        for after_ms in (0, 8_000, 9_500, 0):
            await ask(after_ms)
        assert seen == [(SLAVE, 7, 1), (SLAVE, 7, 1), (SYNC_MASTER, 0, 6), (SLAVE, 7, 7), (SYNC_MASTER, 0, 10)]

    settings = ("listen.port=0", "listen.vip=false", "listen.ha_port=0", "ha.enable=true", "ha.secret=0123456789abcdef")
    run(tmp_path, live, lambda api: arbiter_type(api, hold, 10.0, 7), *settings, clock=clock)
