"""Appending decides where every byte of the store lies; each rule here is one RocketMQ's reader relies on."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import AppendedBatch, DispatchRequest, FlushStatus
from flintmq.core.record.batch import MessageBatch
from flintmq.core.record.host import pack_host
from flintmq.core.record.record import MAGIC_BLANK, RECORD_MIN_BYTES, MessageExtBrokerInner, decode_record, record_size
from flintmq.core.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from flintmq.core.response_code import ResponseCode
from flintmq.core.store.message_store import MessageStore
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, open_store, opened, snapshot
from flintmq.tests.support.effort import examples

FILE_BYTES = 4096
EMPTY_BYTES = RECORD_MIN_BYTES + 1
"""A record of topic ``T`` without body and properties."""


def sized(size_bytes: int, topic: str = "T", queue_id: int = 0) -> MessageExtBrokerInner:
    """A message whose record takes so many bytes."""
    return message(topic, queue_id, b"b" * (size_bytes - EMPTY_BYTES))


def one(store: MessageStore, item: MessageExtBrokerInner) -> DispatchRequest:
    (result,) = store.put([item]).results
    assert isinstance(result, DispatchRequest)
    return result


@pytest.mark.parametrize("left", [8, 9, 10, 50, 99, EMPTY_BYTES + 7])
def test_a_record_that_would_leave_too_few_bytes_for_a_blank_record_goes_to_the_next_log_file(
    tmp_path: Path, left: int
) -> None:
    """A record needs its size and 8 bytes more; otherwise what is left is blanked and the next file begins."""
    with opened(tmp_path) as store:
        first = one(store, sized(FILE_BYTES - left))
        second = one(store, message())
        assert (first.commit_log_offset_bytes, second.commit_log_offset_bytes) == (0, FILE_BYTES)
        files = list(snapshot(tmp_path, "commitlog").items())
        assert [name for name, _raw in files] == [f"commitlog/{at:020d}" for at in (0, FILE_BYTES)]
        assert struct.unpack_from(">II", files[0][1], FILE_BYTES - left) == (left, MAGIC_BLANK)
        assert not files[0][1][FILE_BYTES - left + 8 :].strip(b"\0")
        assert [r.commit_log_offset_bytes for r in store.commit_log.requests(0, store.commit_log.max_offset_bytes)] == [
            0,
            FILE_BYTES,
        ]
        store.dispatch()
        assert store.reader.max_queue_offset("T", 0) == 2


def test_a_record_that_leaves_just_enough_bytes_for_a_blank_record_stays_in_the_current_log_file(
    tmp_path: Path,
) -> None:
    """The other side of the boundary."""
    with opened(tmp_path) as store:
        one(store, sized(FILE_BYTES - EMPTY_BYTES - 8))
        assert one(store, message()).commit_log_offset_bytes == FILE_BYTES - EMPTY_BYTES - 8
        assert one(store, message()).commit_log_offset_bytes == FILE_BYTES


def test_messages_of_a_batch_are_adjacent_in_the_log_and_have_consecutive_queue_offsets(tmp_path: Path) -> None:
    """RocketMQ's clients compute the members' ids from the first."""
    with opened(tmp_path) as store:
        one(store, sized(FILE_BYTES - 400))
        members = [sized(200), sized(100), sized(101)]
        (result,) = store.put([members]).results
        assert isinstance(result, list)
        assert [request.commit_log_offset_bytes for request in result] == [
            FILE_BYTES,
            FILE_BYTES + 200,
            FILE_BYTES + 300,
        ]
        assert [request.queue_offset for request in result] == [1, 2, 3]


def test_only_a_message_or_batch_too_large_for_a_log_file_is_refused(tmp_path: Path) -> None:
    """One message too large must not cost its neighbours anything, nor waste a file."""
    largest = FILE_BYTES - 8
    with opened(tmp_path) as store:
        before, refused, batch, after = store.put(
            [sized(300), sized(largest + 1), [sized(largest // 2), sized(largest // 2 + 1)], sized(300)]
        ).results
        for result in (refused, batch):
            assert isinstance(result, RefusedError)
            assert result.code == ResponseCode.MESSAGE_ILLEGAL
            assert "mappedFileSizeCommitLog" in result.remark
        assert isinstance(before, DispatchRequest)
        assert isinstance(after, DispatchRequest)
        assert (after.commit_log_offset_bytes, after.queue_offset) == (300, 1)
        assert one(store, sized(largest)).commit_log_offset_bytes == FILE_BYTES


def unwritable() -> list[MessageExtBrokerInner]:
    return [
        message("T", 2**31),
        message("T", flag=2**31),
        message("T", sys_flag=2**40),
        message("T", born_timestamp_ms=2**63),
        message("t" * 128),
        message("T", LONG="x" * 70_000),
    ]


@pytest.mark.parametrize("at", range(6))
def test_an_unencodable_message_is_refused_and_other_messages_of_the_same_append_are_stored(
    tmp_path: Path, at: int
) -> None:
    """A field out of range comes from a client; it must not take the messages appended with it, nor leave a hole."""
    broken = unwritable()[at]
    with opened(tmp_path, commit_log_file_bytes=1 << 20) as store:
        results = store.put([message(body=b"1"), broken, [message(body=b"2"), broken], message(body=b"3")]).results
        assert [type(result) for result in results] == [DispatchRequest, RefusedError, RefusedError, DispatchRequest]
        store.dispatch()
        assert bodies(store, "T", 0) == [b"1", b"3"]
        walked = list(store.commit_log.requests(0, store.commit_log.max_offset_bytes))
        assert [request.queue_offset for request in walked] == [0, 1]


def bodies(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    """The bodies a consumer of a queue would see."""
    found: list[bytes] = []
    while len(found) < store.reader.max_queue_offset(topic, queue_id):
        raw = b"".join(store.reader.get_message(topic, queue_id, len(found), 32, None).slices)
        at = 0
        while at < len(raw):
            record = decode_record(raw, at)
            found.append(record.body)
            at += record.size_bytes
    return found


KEYS = st.tuples(st.sampled_from(["A", "B", "%RETRY%g"]), st.integers(0, 2))


@given(st.lists(st.lists(st.tuples(KEYS, st.integers(0, 700)), min_size=1, max_size=6), max_size=12))
@settings(max_examples=examples(40))
def test_every_message_gets_the_next_offset_of_its_queue(
    tmp_path_factory: pytest.TempPathFactory, puts: list[list[tuple[tuple[str, int], int]]]
) -> None:
    """Offsets count per topic and queue, whatever else is appended; and what was put is read back in order."""
    expected: dict[tuple[str, int], list[bytes]] = {}
    with opened(tmp_path_factory.mktemp("store")) as store:
        number = 0
        for put in puts:
            items = []
            for (topic, queue_id), size in put:
                body = b"%d|" % number + b"x" * size
                number += 1
                items.append(message(topic, queue_id, body))
                expected.setdefault((topic, queue_id), []).append(body)
            store.put(list(items))
        while store.dispatch():
            pass
        for (topic, queue_id), wanted in expected.items():
            assert bodies(store, topic, queue_id) == wanted
        end = store.commit_log.max_offset_bytes
        offsets = dict.fromkeys(expected, 0)
        for request in store.commit_log.requests(0, end):
            key = (request.topic, request.queue_id)
            assert request.queue_offset == offsets[key]
            offsets[key] += 1


def test_one_append_of_many_messages_writes_the_same_store_bytes_as_one_append_per_message(tmp_path: Path) -> None:
    """Putting many at once is an optimisation and nothing else."""
    items = [sized(100 + 37 * (n % 30), "AB"[n % 2], n % 3) for n in range(120)]
    with opened(tmp_path / "a") as store:
        for item in items:
            store.put([item])
    with opened(tmp_path / "b") as store:
        store.put(list(items))
    folders = ("commitlog", "consumequeue", "index")
    assert snapshot(tmp_path / "a", *folders) == snapshot(tmp_path / "b", *folders)


@pytest.mark.parametrize(
    "hosts", [("127.0.0.1", "127.0.0.1"), ("::1", "127.0.0.1"), ("127.0.0.1", "::1"), ("::1", "::2")]
)
@pytest.mark.parametrize("bodies", [[b"", b"1", b"22" * 90], [b"same"] * 3])
def test_a_batch_is_stored_as_the_same_bytes_as_its_messages_sent_one_by_one(
    tmp_path: Path, hosts: tuple[str, str], bodies: list[bytes]
) -> None:
    """A batch has a way of its own to the log; neither log nor dispatchers can tell it from single messages."""
    born, stored_at = (pack_host(host, 10911) for host in hosts)
    singles = [
        message("T", 3, body, tags="a", keys="k", uniq_key=f"U{at}", born_host=born, store_host=stored_at, flag=at)
        for at, body in enumerate(bodies)
    ]
    batch = MessageBatch(
        "T",
        3,
        [single.flag for single in singles],
        bodies,
        [single.properties_bytes for single in singles],
        singles[0].born_timestamp_ms,
        born,
        stored_at,
        sys_flag=0x30,  # what a client says of its hosts does not count
    )
    with opened(tmp_path / "a", clock=ManualClock()) as alone, opened(tmp_path / "b", clock=ManualClock()) as together:
        expected = [one(alone, single) for single in singles]
        (found,) = together.put([batch]).results
        assert isinstance(found, AppendedBatch)
        assert found.requests() == expected
        assert together.put([singles[0]]).results == alone.put([singles[0]]).results
        alone.dispatch(), together.dispatch()
    assert snapshot(tmp_path / "a", "commitlog", "consumequeue") == snapshot(
        tmp_path / "b", "commitlog", "consumequeue"
    )


def test_no_message_of_a_batch_is_stored_if_a_property_of_one_message_cannot_be_encoded(tmp_path: Path) -> None:
    """All of its messages or none: a hole in the queue's numbers would never be filled."""
    host = pack_host("127.0.0.1", 10911)
    with opened(tmp_path) as store:
        first = one(store, message("T", 0))
        batch = MessageBatch("T", 0, [0, 0], [b"1", b"2"], [b"a\x01b", b"a\x01\0"], 1, host, host)
        good = MessageBatch("T", 0, [0, 0], [b"1", b"2"], [b"a\x01b", b"a\x01c"], 1, host, host)
        refused, stored = store.put([batch, good]).results
        assert isinstance(refused, RefusedError)
        assert isinstance(stored, AppendedBatch)
        assert [request.queue_offset for request in stored.requests()] == [1, 2]
        assert stored.commit_log_offset_bytes == first.message_size_bytes


def test_a_message_with_the_property_wait_false_is_flushed_to_disk_like_other_messages(tmp_path: Path) -> None:
    """WAIT=false changes when the sender is answered, not what is stored; the promise of durability is made all the same."""
    with opened(tmp_path / "a") as store:
        assert store.put([message(wait=True)]).waiter.status is FlushStatus.FLUSHED
    with opened(tmp_path / "b") as store:
        assert store.put([message(wait=False)]).waiter.status is FlushStatus.FLUSHED
    assert snapshot(tmp_path / "a", "commitlog") == snapshot(tmp_path / "b", "commitlog")


def test_a_record_of_a_prepared_or_rolled_back_transaction_gets_no_queue_offset(tmp_path: Path) -> None:
    """Stores of brokers before 4.3 hold such records; they enter no queue.

    See docs/internals/store-format.md, Commit log record.
    """
    with opened(tmp_path) as store:
        for flag, queue_offset in (
            (TRANSACTION_PREPARED, 0),
            (0, 0),
            (TRANSACTION_ROLLBACK, 0),
            (TRANSACTION_COMMIT, 1),
            (TRANSACTION_PREPARED, 0),
        ):
            assert one(store, message(sys_flag=flag)).queue_offset == queue_offset
        store.dispatch()
        assert store.reader.max_queue_offset("T", 0) == 2


@pytest.mark.parametrize(
    ("level", "delay_ms"),
    [("1", 1_000), ("18", DELAY_LEVEL_MS[18]), ("99", DELAY_LEVEL_MS[18]), ("0", None), ("-1", None), ("x", None)],
)
def test_the_tags_code_of_a_message_in_the_schedule_topic_is_its_delivery_time(
    tmp_path: Path, level: str, delay_ms: int | None
) -> None:
    """A delayed message's queue unit says when it is due; from memory and from the log alike."""
    clock = ManualClock()
    with opened(tmp_path, clock=clock) as store:
        item = message("SCHEDULE_TOPIC_XXXX", 3, tags="TagA", DELAY=level)
        wanted = item.tags_code if delay_ms is None else clock.now_ms() + delay_ms
        assert one(store, item).tags_code == wanted
        (walked,) = store.commit_log.requests(0, store.commit_log.max_offset_bytes)
        assert walked.tags_code == wanted


def test_a_record_with_ipv6_addresses_of_client_and_broker_is_read_back_unchanged(tmp_path: Path) -> None:
    """Twelve bytes more per host move every later field."""
    v6 = pack_host("fd00::1", 10911)
    with opened(tmp_path) as store:
        for born in (v6, pack_host("10.0.0.1", 1)):
            for stored in (v6, pack_host("10.0.0.1", 1)):
                item = message(body=b"x", tags="a", born_host=born, store_host=stored)
                request = one(store, item)
                record = store.reader.message_at(request.commit_log_offset_bytes)
                assert record is not None
                assert (record.born_host, record.store_host, record.body) == (born, stored, b"x")
                assert store.reader.message_store_time("T", 0, request.queue_offset) == -1
                assert (
                    store.commit_log.store_timestamp_ms(request.commit_log_offset_bytes) == request.store_timestamp_ms
                )
                assert request.message_size_bytes == record_size(item)


def test_reading_a_message_at_an_offset_where_no_record_begins_returns_none(tmp_path: Path) -> None:
    """viewMessage asks for whatever offset a client names."""
    store = open_store(tmp_path)
    starts = {one(store, sized(150 + n)).commit_log_offset_bytes: 150 + n for n in range(40)}
    end = store.commit_log.max_offset_bytes
    for at in [-(2**63), -1, *range(end + 20), 2**62]:
        record = store.reader.message_at(at)
        assert (record.size_bytes if record is not None else None) == starts.get(at)
    assert store.commit_log.slice(0, 150) is not None
    assert store.commit_log.slice(0, 0) is None
    assert store.commit_log.slice(-5, 10) is None
    assert store.commit_log.slice(end - 5, 10) is None
    assert store.commit_log.slice(FILE_BYTES - 5, 10) is None
    store.close()
