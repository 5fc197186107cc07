"""The listener and its connections. A request is one line of words. An answer has at least one line. Bodies are
percent-encoded. The table shows each request, and its answer on the right.

    PUT TOPIC BODY                                       STORED QUEUE OFFSET
    PULL GROUP TOPIC QUEUE OFFSET                        MESSAGE QUEUE OFFSET BODY ..., END OFFSET
    HOLD GROUP TOPIC QUEUE OFFSET TIMEOUT_MS             as for PULL, after a wait for the first message
    WAIT TOPIC TIMEOUT_MS OFFSET_OF_QUEUE_0 ...          as for HOLD, but for all queues; END has an offset for each queue

A refused request is answered with ``REFUSED``, the id of the reason and a text. A line that is not a request is answered with
``MALFORMED`` and a text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from flintmq import RefusedError
from flintmq.core.broker.api import BrokerApi, Empty, Found, HeldPull, NewMessage, Stored, Wanted

LINE_MAX_BYTES = 256 * 1024
"""Maximum number of bytes that were received from a client and not handled yet. A client that exceeds this number is
disconnected."""


class LineListener:
    """The service (:class:`flintmq.core.kernel.ports.Service`) that listens for clients. Used only on the event loop's thread.

    Args:
        api: the broker.
        host, port: the address to listen on; port 0 takes a free port.
    """

    def __init__(self, api: BrokerApi, host: str, port: int) -> None:
        self._api = api
        self._host = host
        self._port = port
        self._connections: set[LineConnection] = set()
        self._server: asyncio.Server | None = None

    def start(self) -> None:
        """Do nothing at the start of the service: :meth:`ready` begins to listen, once the broker can serve clients."""

    async def ready(self) -> None:
        """Begin to listen for clients. Raises OSError if the address cannot be bound."""
        make = partial(LineConnection, self._api, self._connections)
        self._server = await self._api.work.loop.create_server(make, self._host, self._port)

    def ready_words(self) -> Mapping[str, str]:
        """Return the listener's address as ``host:port``, under the key ``lines``. FlintMQ prints ``lines=host:port`` in the
        line READY when the broker can serve clients."""
        found = self._server.sockets[0].getsockname() if self._server is not None else ("", 0)
        return {"lines": f"{found[0]}:{found[1]}"}

    def withdraw(self) -> None:
        """Stop listening for clients, and close their connections."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.close()

    def stop(self) -> None:
        """Do nothing at the stop of the service: :meth:`withdraw` has closed the connections."""


class LineConnection(asyncio.Protocol):
    """The connection of a client, which the broker serves as a producer and a consumer. Used only on the event loop's thread.

    Requests are answered in the order in which they arrive.

    Args:
        api: the broker.
        connections: the open connections; this connection adds and removes itself.
    """

    def __init__(self, api: BrokerApi, connections: set[LineConnection]) -> None:
        self._api = api
        self._connections = connections
        self._received = bytearray()
        self._held: HeldPull | None = None
        self._acknowledging: asyncio.Task[None] | None = None
        self._is_full = False

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        host, port = transport.get_extra_info("peername")[:2]
        self.remote_address = f"{host}:{port}"
        self.packed_host = ip_address(host).packed + port.to_bytes(4, "big")
        self._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        if self._held is not None:
            self._api.outlet.cancel(self._held)

    def close(self) -> None:
        """Close the connection after the answers in its buffer are sent."""
        self._transport.close()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._go_on()

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._go_on()
        if len(self._received) > LINE_MAX_BYTES:
            self._say("MALFORMED too long")
            self.close()

    def _go_on(self) -> None:
        """Handle the complete lines of the connection in order. Stop if a request waits for a message or a flush, or if the
        write buffer is full."""
        while self._held is None and self._acknowledging is None and not self._is_full:
            line, end, rest = self._received.partition(b"\n")
            if not end:
                return
            self._received = rest
            self._answer(partial(self._take, line.decode("ascii", "replace").split()))

    def _answer(self, take: Callable[[], object]) -> None:
        try:
            take()
        except RefusedError as error:
            self._say(f"REFUSED {error.reason} {error.remark}")
        except ValueError as error:
            self._say(f"MALFORMED {error}")

    def _say(self, line: str) -> None:
        self._transport.write(line.encode("utf-8", "replace") + b"\n")

    def _take(self, words: list[str]) -> None:
        match words:
            case ["PUT", topic, body]:
                self._put(topic, unquote_to_bytes(body))
            case ["PULL", group, topic, queue_id, queue_offset]:
                self._pull(Wanted(topic, int(queue_id), int(queue_offset), group, self), 0)
            case ["HOLD", group, topic, queue_id, queue_offset, timeout_ms]:
                self._pull(Wanted(topic, int(queue_id), int(queue_offset), group, self), int(timeout_ms))
            case ["WAIT", topic, timeout_ms, *queue_offsets]:
                self._read(topic, [int(one) for one in queue_offsets], int(timeout_ms))
            case _:
                raise ValueError("no request")

    def _put(self, topic: str, body: bytes) -> None:
        api = self._api
        api.log.check_writeable()
        message = api.intake.single(NewMessage(topic, born_timestamp_ms=api.clock.now_ms()), body, self)
        self._acknowledging = api.work.loop.create_task(self._acknowledge(api.put([message])))

    async def _acknowledge(self, stored: Stored) -> None:
        try:
            (record,) = stored.requests()
            await stored.acknowledge()
        except RefusedError as error:
            self._say(f"REFUSED {error.reason} {error.remark}")
        else:
            self._say(f"STORED {record.queue_id} {record.queue_offset}")
        self._acknowledging = None
        self._go_on()

    def _pull(self, wanted: Wanted, timeout_ms: int) -> None:
        pulled = self._api.outlet.pull(wanted)
        if timeout_ms and pulled.may_wait:
            again = partial(self._pull, wanted, 0)
            self._held = self._api.outlet.hold(wanted, timeout_ms, partial(self._woken, again))
        else:
            self._say_found([(wanted.queue_id, pulled)])

    def _read(self, topic: str, queue_offsets: list[int], timeout_ms: int) -> None:
        outlet = self._api.outlet
        found = [(queue_id, outlet.read(topic, queue_id, at)) for queue_id, at in enumerate(queue_offsets)]
        if timeout_ms and not any(one.message_count for _, one in found):
            again = partial(self._read, topic, queue_offsets, 0)
            self._held = outlet.hold_any(topic, partial(self._woken, again), timeout_ms, peer=self)
        else:
            self._say_found(found)

    def _woken(self, again: Callable[[], object], _held: HeldPull) -> None:
        self._held = None
        self._answer(again)
        self._go_on()

    def _say_found(self, found: list[tuple[int, Found | Empty]]) -> None:
        for queue_id, one in found:
            if isinstance(one, Found):
                for record in one.messages():
                    self._say(f"MESSAGE {queue_id} {record.queue_offset} {quote(record.body)}")
        self._say(f"END {' '.join(str(one.next_queue_offset) for _, one in found)}")
