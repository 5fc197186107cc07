"""Plugins bring models of their own: their settings must get the same care as the built-in ones."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

from flintmq.config import ConfigError, load_config, load_text, option, rows


class Mode(enum.Enum):
    FAST = "fast"
    SAFE = "safe"


@attrs.frozen
class Target:
    host: str
    port: int = 80


@attrs.frozen(kw_only=True)
class Audit:
    path: str
    interval_ms: int = option(1_000, minimum=10)
    limit_bytes: int = 4096
    wait_s: float = 1.5
    mode: Mode = Mode.SAFE
    level: Literal["low", "high"] = "low"
    topics: tuple[str, ...] = ()
    targets: list[Target] = attrs.field(factory=list)
    labels: Mapping[str, int] = attrs.field(factory=dict)
    target: Target | None = None
    size: int | str = 0
    folder: Path = Path()
    rest: Any = None
    workers: int = attrs.field(default=1, validator=attrs.validators.ge(1))


FULL = """\
audit:
  path: /tmp/a
  interval_ms: 5s
  limit_bytes: 64KiB
  wait_s: 250ms
  mode: fast
  level: high
  topics: [a, b]
  targets:
    - host: one
    - {host: two, port: 81}
  labels: {x: 1, y: 2}
  target: {host: three}
  size: large
  folder: /srv
  rest: {a: [1, ~], b: c}
"""


def error_of(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_text(text, name="b.yaml").section("audit", Audit)
    return caught.value


def test_a_plugin_section_is_loaded_as_the_settings_class_of_its_plugin() -> None:
    """Units come from the field's name where the plugin declares none."""
    audit = load_text(FULL).section("audit", Audit)
    assert audit == Audit(
        path="/tmp/a",
        interval_ms=5_000,
        limit_bytes=65_536,
        wait_s=0.25,
        mode=Mode.FAST,
        level="high",
        topics=("a", "b"),
        targets=[Target("one"), Target("two", 81)],
        labels={"x": 1, "y": 2},
        target=Target("three"),
        size="large",
        folder=Path("/srv"),
        rest={"a": ["1", None], "b": "c"},
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("audit:\n  pth: x", "b.yaml:2: unknown key 'audit.pth'; did you mean 'audit.path'?"),
        ("audit:\n  workers: 2", "b.yaml:1: 'audit.path' is required"),
        ("broker:\n  id: 1", "'audit.path' is required"),
        ("audit:\n  path: x\n  interval_ms: 5ms", "b.yaml:3: 'audit.interval_ms' must be at least 10 ms, not 5"),
        ("audit:\n  path: x\n  workers: 0", "b.yaml:3: 'audit.workers' must be >= 1: 0"),
        ("audit:\n  path: x\n  mode: slow", "b.yaml:3: 'audit.mode' must be one of fast, safe"),
        ("audit:\n  path: x\n  level: mid", "b.yaml:3: 'audit.level' must be one of low, high"),
        ("audit:\n  path: x\n  wait_s: abc", "b.yaml:3: 'audit.wait_s' must be a duration"),
        ("audit:\n  path: x\n  target: 5", "b.yaml:3: 'audit.target' is a section"),
        ("audit:\n  path: x\n  labels: 5", "b.yaml:3: 'audit.labels' is a section"),
        ("audit:\n  path: x\n  labels: {a: b}", "b.yaml:3: 'audit.labels.a' must be a whole number"),
        (
            "audit:\n  path: x\n  targets:\n  - host: a\n  - hst: b",
            "b.yaml:5: unknown key 'audit.targets[1].hst'; did you mean 'audit.targets[1].host'?",
        ),
    ],
)
def test_errors_in_plugin_sections_name_their_line(text: str, expected: str) -> None:
    """A plugin's author writes a class and gets the loader's messages for nothing."""
    assert str(error_of(text)).startswith(expected)


def test_settings_of_a_plugin_can_be_given_on_the_command_line_or_in_environment_variables() -> None:
    """``--set`` and the environment work for plugins as for everything else."""
    loaded = load_config(None, ["audit.path=/x", "audit.labels.a=1"], {"FLINTMQ_AUDIT__WORKERS": "4"})
    audit = loaded.section("audit", Audit)
    assert (audit.path, audit.workers, audit.labels) == ("/x", 4, {"a": 1})


def test_settings_of_a_third_party_flush_strategy_are_read_from_its_section_under_flush() -> None:
    """A third party's strategy is configured where the built-in ones are."""

    loaded = load_text("flush:\n  strategy: turbo\n  turbo:\n    host: x\n")
    assert loaded.config.flush.strategy == "turbo"
    assert set(loaded.sections) == {"flush.turbo"}
    assert loaded.section("flush.turbo", Target) == Target("x")
    loaded.check_claimed(["flush.turbo"])


def test_a_section_that_belongs_to_no_plugin_is_an_error() -> None:
    """A misspelt section would otherwise be ignored in silence."""
    loaded = load_text("audit: {path: x}\nstor:\n  path: x\n", name="b.yaml")
    with pytest.raises(ConfigError) as caught:
        loaded.check_claimed(["audit"])
    assert str(caught.value) == "b.yaml:2: unknown key 'stor': no plugin has such a section; did you mean 'store'?"
    with pytest.raises(ConfigError, match="did you mean 'audit'"):
        load_text("audt: {path: x}").check_claimed(["audit"])
    with pytest.raises(ConfigError, match="unknown key 'x1'"):
        load_config(None, ["x1.y=1"], {}).check_claimed(["audit"])
    load_text("audit:\n").check_claimed(["audit"])


def test_a_settings_class_that_is_not_an_attrs_class_raises_type_error() -> None:
    """Not the operator's: so no ConfigError."""
    with pytest.raises(TypeError, match="attrs class"):
        load_text("audit: {}").section("audit", dict)


def test_passwords_and_secret_keys_in_plugin_sections_are_hidden_in_the_displayed_configuration() -> None:
    """``config show`` ends up in tickets; the loader does not know a plugin's model when it prints."""
    loaded = load_text("audit: {path: x, password: hunter2, users: [{name: a, secretKey: hunter2}]}")
    shown = {row.key: row.value for row in rows(loaded)}
    assert shown["audit.path"] == "x"
    assert "hunter2" not in "".join(shown.values())


@attrs.frozen
class Place:
    """Where a text is."""

    env: str


@attrs.frozen
class TextOrPlace:
    """A section with a value of two kinds."""

    password: str | Place


def test_the_error_about_a_misspelled_key_in_a_plugin_section_suggests_the_correct_key() -> None:
    """A value that is text or a section: with a section only that can be meant, so its misspelt key is what is named."""

    text = "my_plugin:\n  password: {evn: X}\n"
    with pytest.raises(ConfigError, match=r"'my_plugin\.password\.evn'; did you mean 'my_plugin\.password\.env'"):
        load_text(text).section("my_plugin", TextOrPlace)
