"""A configuration file may come from anyone: hostile or broken YAML must end in one clear error that names the line."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.config import ConfigError
from flintmq.config.loading.raw import RawMapping, RawScalar
from flintmq.config.loading.yaml_source import YAML_MAX_BYTES, YAML_MAX_NODES, parse_yaml


def error_of(content: str | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(content, "f.yaml")
    return caught.value


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("a: 1\nb: !!python/object/apply:os.system [id]\n", 2, "tags are not allowed"),
        ("a: !!str 1\n", 1, "tags are not allowed"),
        ("a: ! 1\n", 1, "tags are not allowed"),
        ("a: &x 1\n", 1, "anchors and aliases"),
        ("a: &x\n  b: 1\n", 1, "anchors and aliases"),
        ("a: 1\nb: *x\n", 2, "anchors and aliases"),
        ("a: 1\nb: 2\na: 3\n", 3, "'a' is given twice; first in line 1"),
        ("s:\n  k: 1\n  'k': 2\n", 3, "'k' is given twice; first in line 2"),
        ("a: [1, 2\nb: 3\n", 2, "expected"),
        ("a: 'open\n", 2, "scanning a quoted scalar|unexpected end"),
        ("a:\n\t- 1\n", 2, "cannot start any token"),
        ("- a\n- b\n", 1, "top level"),
        ("just text\n", 1, "top level"),
        ("? [a, b]\n: 1\n", 1, "a key must be a scalar"),
        ("{a: 1}: 2\n", 1, "a key must be a scalar"),
        ("'': 2\n", 1, "a key must be a scalar"),
        ("a: 1\n---\nb: 2\n", 2, "another document"),
    ],
)
def test_malformed_yaml_is_refused_with_its_line(content: str, line: int, words: str) -> None:
    """The operator sees the line to look at."""
    error = error_of(content)
    assert (error.file, error.line) == ("f.yaml", line)
    assert re.search(words, error.message), error.message


@pytest.mark.parametrize(
    "content",
    [
        "a: " + "[" * 12 + "]" * 12,
        "[" * 100_000,
        "{a: " * 12 + "1" + "}" * 12,
        "".join(f"{'  ' * depth}k:\n" for depth in range(12)),
    ],
)
def test_yaml_nested_deeper_than_ten_levels_is_refused(content: str) -> None:
    """The composer recurses: without a limit a short file overflows the stack."""
    assert "nested deeper than 10" in error_of(content).message


def test_too_large_yaml_files_are_refused() -> None:
    """Parsing takes seconds per MiB; a broker must not spend them on a file of garbage."""
    assert "larger than" in error_of("#" * (YAML_MAX_BYTES + 1)).message
    assert "more than" in error_of(f"a: [{'1,' * YAML_MAX_NODES}]").message


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a: \x00", b"a: 1\nb: \xc3\x28", 'a: "\\UFFFFFFFF"', "a: \ud800"])
def test_yaml_files_not_encoded_in_utf8_are_refused(content: str | bytes) -> None:
    """Encoding mistakes are reported as such, not as a traceback."""
    assert error_of(content).file == "f.yaml"


@pytest.mark.parametrize("content", ["", "# nothing\n", "---\n", "~", "null", "\ufeff"])
def test_a_file_without_content_is_an_empty_configuration(content: str) -> None:
    """A file with everything commented out means all defaults."""
    assert parse_yaml(content, "f.yaml").entries == {}


def test_yaml_values_are_read_as_text_without_type_conversion() -> None:
    """YAML's guesses (``on`` is true, ``04`` is octal, ``1:30`` is 90) must not reach a setting."""
    mapping = parse_yaml("a: on\nb: 04\nc: 1:30\nd: ~\ne: '~'\nf: 1_000\n<<: x\n", "f.yaml")
    texts = {name: node.text for name, node in mapping.entries.items() if isinstance(node, RawScalar)}
    assert texts == {"a": "on", "b": "04", "c": "1:30", "d": "~", "e": "~", "f": "1_000", "<<": "x"}
    nulls = {name for name, node in mapping.entries.items() if isinstance(node, RawScalar) and node.is_null}
    assert nulls == {"d"}


@given(st.one_of(st.text(max_size=200), st.binary(max_size=200), st.text("[]{}:,&*!|>-?'\"\n ab\\#%@~<", max_size=80)))
def test_any_bytes_are_read_as_yaml_or_raise_config_error(content: str | bytes) -> None:
    """Nothing but ConfigError may escape the reader."""
    with contextlib.suppress(ConfigError):
        assert isinstance(parse_yaml(content, "f.yaml"), RawMapping)
