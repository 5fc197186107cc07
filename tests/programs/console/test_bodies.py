"""A body is shown as what it is, and never as more than a page can hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.programs.console import bodies
from flintmq.programs.console.bodies import FORMS, shown_body


@pytest.mark.parametrize(
    ("body", "form", "text"),
    [
        (b'{"b":1,"a":[1.5,null]}', "json", '{\n  "b": 1,\n  "a": [\n    1.5,\n    null\n  ]\n}'),
        (b'{"a":1,"a":2}', "text", '{"a":1,"a":2}'),
        (b'{"a":1.00000000000000000001}', "text", '{"a":1.00000000000000000001}'),
        (b"1e400", "text", "1e400"),
        (b"NaN", "text", "NaN"),
        (b"[" * 100_000, "text", None),
        ("grüß\n\tdich".encode(), "text", "grüß\n\tdich"),
        ("a\u202eb\x1b[0m".encode(), "text", "a\\u202eb\\x1b[0m"),
        (b"\xff\xfe\x00A", "hex", "00000000  ff fe 00 41                                      ...A"),
        (b"a\x00b", "hex", None),
        (b"", "text", ""),
    ],
)
def test_the_format_of_a_message_body_is_detected(body: bytes, form: str, text: str | None) -> None:
    found = shown_body(body)
    assert found.form == form
    assert text is None or found.text == text


def test_a_large_message_body_is_shortened_in_every_display_format() -> None:
    """In every form: the page stays small, and says that there is more."""
    for body in (b"x" * 2**22, b"[" + b"1," * 2**21 + b"1]", bytes(2**22), "ü".encode() * 2**21 + b"x"):
        for form in FORMS:
            found = shown_body(body, form, '"string"')
            assert found.is_cut
            assert len(found.text) < 100_000
            assert found.size_bytes == len(body)


def test_a_character_cut_in_half_at_the_end_of_a_shortened_body_is_omitted() -> None:
    found = shown_body(b"x" * (bodies.SHOWN_MAX_BYTES - 1) + "ü".encode() * 10, "text")
    assert (found.form, len(found.text)) == ("text", bodies.SHOWN_MAX_BYTES - 1)


def test_the_reason_is_given_if_a_body_cannot_be_shown_in_the_chosen_format() -> None:
    assert shown_body(b"hello", "json").problem.startswith("it is not JSON")
    assert shown_body(b"\xff", "text").problem == "it is not text in UTF-8"
    assert shown_body(b"\x02", "avro").problem.startswith("give the Avro schema")
    assert shown_body(b"\x02", "avro", "{").problem.startswith("Avro: the schema is not JSON")
    assert shown_body(b"\x02", "avro", "int").text == "1"


@given(st.binary(max_size=300), st.sampled_from(FORMS))
def test_any_body_is_shown_as_printable_text(body: bytes, form: bodies.Form) -> None:
    """And nothing in it steers the reader's screen."""
    text = shown_body(body, form, "bytes").text
    assert all(one.isprintable() or one in "\n\t" for one in text)


def test_deeply_nested_json_is_shown_as_text() -> None:
    """Each level indents every line in it, so 256 KiB of it once became 500 MB."""
    one = b"[" * 900 + b"]" * 900
    body = b"[" + b",".join([one] * 140) + b"]"
    for form in ("auto", "json"):
        found = shown_body(body, form)
        assert (found.form, found.is_cut) == ("text", True)
        assert found.problem == "it is JSON that nests deeper than 64"
    found = shown_body(b"[" * 60 + b"1" + b"]" * 60)
    assert (found.form, found.is_cut) == ("json", False)


def test_the_displayed_text_of_a_message_body_is_shortened_if_formatting_makes_it_too_long() -> None:
    """A body of marks or of deep lists makes many times as much text."""
    for body in ("\u202e".encode() * 80_000, b"[" * 60 + b"0," * 100_000 + b"0" + b"]" * 60):
        found = shown_body(body)
        assert found.is_cut
        assert len(found.text) <= 256 * 1024
