"""What each stage of the client's hot paths costs: ``python tests/benchmarks/client_path.py [--json] [--repeats N]``.

Processor time of one message in microseconds, without a socket: the least of several repeats, for noise only ever adds.
``tools/bench_client.py`` measures the whole client beside the Java client.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.record.host import pack_host
from flintmq.core.record.record import MessageExtBrokerInner, encode_record, record_size
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.client.message import Message, MessageExt, decode_messages
from flintmq.remoting.client.prepared import Preparer
from flintmq.remoting.client.process_queue import CacheLimits, ProcessQueue
from flintmq.remoting.client.send_result import send_result, send_results
from flintmq.remoting.client.sending import Sender
from flintmq.remoting.wire.command import decode_command, encode_command, request, response
from flintmq.remoting.wire.headers_message import SendMessageResponseHeader

MANY = 64
"""Messages that are gathered into one request."""
PULL = 32
"""Messages in an answer to a pull."""
CALLS = 200
MESSAGE = Message("ClientPath", bytes(128), tags="paid", keys="order-1")
QUEUE = MessageQueue("broker-a", 0, MESSAGE.topic)
HOST = pack_host("127.0.0.1", 10911)


def main() -> None:
    """Print a row for each stage."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7, metavar="N")
    parser.add_argument("--json", action="store_true", help="print an object instead of a table")
    options = parser.parse_args()
    found = measure(options.repeats)
    if options.json:
        print(json.dumps(found))
    else:
        for name, cost_us in found.items():
            print(f"{name:34}{cost_us:8.2f} µs")


def measure(repeats: int) -> dict[str, float]:
    """Return the stages, each with the least processor time of a message."""
    return {
        name: round(min(_cost_us(work, messages) for _ in range(repeats)), 3)
        for name, (work, messages) in stages().items()
    }


def _cost_us(work: Callable[[], object], messages: int) -> float:
    began_ns = time.process_time_ns()
    for _ in range(CALLS):
        work()
    return (time.process_time_ns() - began_ns) / CALLS / messages / 1000


def stages() -> dict[str, tuple[Callable[[], object], int]]:
    """Return what is measured, by name, with the messages that each call is for."""
    sender, preparer = Sender(ClientInstance("127.0.0.1:9876"), "g"), Preparer()
    prepared = preparer.one(MESSAGE)
    items = [preparer.item(MESSAGE) for _ in range(MANY)]
    msg_ids = [msg_id for msg_id, _ in items]
    offset_msg_ids = ["7F00000100002A9F0000000000000000"] * MANY
    one, many = _stored(offset_msg_ids[:1]), _stored(offset_msg_ids)
    answer = decode_command(one)
    records = b"".join(map(_record, range(PULL)))
    decoded = decode_messages(records, "broker-a")
    return {
        "send: check and encode": (lambda: preparer.one(MESSAGE), 1),
        "send: request": (lambda: encode_command(sender.command(prepared, QUEUE)), 1),
        "send: answer": (lambda: decode_command(one), 1),
        "send: result": (lambda: send_result(prepared.msg_id, QUEUE, answer), 1),
        "gathered: check and encode": (lambda: [preparer.item(MESSAGE) for _ in range(MANY)], MANY),
        "gathered: request": (
            lambda: encode_command(sender.command(preparer.joined([MESSAGE] * MANY, items), QUEUE)),
            MANY,
        ),
        "gathered: results": (lambda: send_results(msg_ids, QUEUE, decode_command(many)), MANY),
        "consume: messages of an answer": (lambda: decode_messages(records, "broker-a"), PULL),
        "consume: properties as well": (
            lambda: [message.properties for message in decode_messages(records, "broker-a")],
            PULL,
        ),
        "consume: hold and release": (lambda: _hold(decoded), PULL),
    }


def _stored(offset_msg_ids: list[str]) -> bytes:
    """Return the frame of an answer, without its length."""
    header = SendMessageResponseHeader(
        msg_id=",".join(offset_msg_ids), queue_id=0, queue_offset=0, region_id="DefaultRegion", trace_on=True
    )
    return encode_command(response(request(310), 0, header=header))[4:]


def _record(queue_offset: int) -> bytes:
    message = MessageExtBrokerInner(
        topic=MESSAGE.topic,
        queue_id=0,
        body=MESSAGE.body,
        properties={},
        properties_bytes=MESSAGE.wire_text("7F00000100002A9F0000000000000000").encode(),
        born_timestamp_ms=1_700_000_000_000,
        born_host=HOST,
        store_host=HOST,
    )
    size_bytes = record_size(message)
    return b"".join(encode_record(message, size_bytes, queue_offset, queue_offset * size_bytes, 1_700_000_000_000))


def _hold(messages: list[MessageExt]) -> None:
    held = ProcessQueue(QUEUE, 0, CacheLimits(1_000, 1 << 30, 2_000))
    held.put(messages)
    held.done(messages)


if __name__ == "__main__":
    main()
