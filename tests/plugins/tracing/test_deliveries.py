"""Traced messages are found among those of an answer, and only those."""

from __future__ import annotations

from pathlib import Path

from flintmq.core.kernel.ports import HandedOut
from flintmq.plugins.tracing.deliveries import PLACES_MAX, TracedPlaces, deliveries, marked_pieces
from flintmq.testing.store import message, opened

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNSAMPLED = f"{PARENT[:-1]}0"


def log_of(root: Path, *messages: object) -> tuple[list[memoryview], list[int]]:
    """The records of messages as a pull finds them, and their positions."""
    with opened(root) as store:
        positions = [one.commit_log_offset_bytes for one in store.put(messages).records]  # type: ignore[arg-type]
        store.dispatch()
        found = store.reader.get_message("T", 0, 0, 100, None)
        return [memoryview(bytes(piece)) for piece in found.slices], positions


def found(pieces: list[memoryview]) -> list[tuple[object, object]]:
    """Queue offset and id of what is found."""
    handed_out = HandedOut("T", "C", 0, pieces, 0.0)
    spans = [span for piece in marked_pieces(pieces) for span in deliveries(handed_out, piece, 1, 2, 1_700_000_000_500)]
    return [(span.attributes["flintmq.queue_offset"], span.attributes["messaging.message.id"]) for span in spans]


def test_delivered_messages_are_traced_only_if_their_traceparent_has_the_sampled_flag(tmp_path: Path) -> None:
    """Whatever stands in bodies and other properties; a value that looks sampled and is none by the rules is none."""
    lookalike = b"\x02traceparent\x01" + PARENT.encode()
    pieces, _ = log_of(
        tmp_path,
        message(uniq_key="plain", body=b"x" * 500),
        message(uniq_key="body", body=lookalike * 3),
        message(uniq_key="one", body=lookalike, traceparent=PARENT),
        message(uniq_key="unsampled", traceparent=UNSAMPLED),
        message(uniq_key="other", xtraceparent=PARENT),
        message(uniq_key="more", traceparent=f"{PARENT}-more"),
        message(uniq_key="two", traceparent=PARENT, KEYS="k"),
    )
    assert found(pieces) == [(2, "one"), (6, "two")]


def test_commit_log_records_without_a_sampled_traceparent_are_not_traced(tmp_path: Path) -> None:
    """No record is taken apart then."""
    pieces, _ = log_of(tmp_path, message(uniq_key="a"), message(uniq_key="b", traceparent=UNSAMPLED))
    assert marked_pieces(pieces) == []


def test_the_search_for_traced_messages_ends_at_a_damaged_record(tmp_path: Path) -> None:
    """A size of 0, or one that leads out of the piece, is followed by nothing that can be trusted."""
    (piece,), _ = log_of(tmp_path, message(uniq_key="a"), message(uniq_key="b", traceparent=PARENT))
    for size in (0, 5, 2**31 - 1):
        torn = bytearray(piece)
        torn[:4] = size.to_bytes(4, "big")
        assert found([memoryview(torn)]) == []


def test_tracing_skips_delivered_records_that_are_known_to_be_untraced(tmp_path: Path) -> None:
    """What was stored since the start; older records are always searched."""
    pieces, positions = log_of(tmp_path, *(message(uniq_key=str(n)) for n in range(4)))
    (piece,) = pieces
    ends = [*positions[1:], len(piece)]
    each = [piece[begin:end] for begin, end in zip(positions, ends, strict=True)]
    places = TracedPlaces(positions[1])
    assert places.may_be_in([each[0]])  # from before the start
    assert not places.may_be_in(each[1:])
    places.add(positions[2])
    assert [places.may_be_in([one]) for one in each] == [True, False, True, False]
    assert places.may_be_in([each[1], each[3]])  # with a gap: it has to be looked at
    assert TracedPlaces(None).may_be_in([each[3]])


def test_the_number_of_remembered_log_positions_of_traced_messages_is_bounded(tmp_path: Path) -> None:
    """What is forgotten counts as older than the start."""
    (piece,), _ = log_of(tmp_path, message(uniq_key="a"))
    places = TracedPlaces(0)
    assert not places.may_be_in([piece])
    for number in range(3 * PLACES_MAX):
        places.add(1_000_000 + number)
    assert len(places._places) <= PLACES_MAX
    assert places.may_be_in([piece])
