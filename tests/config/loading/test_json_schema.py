"""An editor that marks what the loader takes, or passes what it refuses, is worse than none: schema and loader must agree."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.config import ConfigError, load_text, option
from flintmq.config.loading.json_schema import BEYOND, json_schema
from flintmq.config.loading.layer import OPEN_SECTIONS
from flintmq.config.loading.schema import COMPOSITES, KEYS, SECTIONS, Role, aliases, aliases_in
from flintmq.tests.support.effort import examples


class Mode(enum.Enum):
    FAST = "fast"
    SAFE = "safe"


@attrs.frozen
class Target:
    """Where to."""

    host: str
    port: int = option(80, minimum=1, maximum=65535)


@attrs.frozen(kw_only=True)
class Audit:
    """What an audit writes."""

    path: str = "/tmp"
    """The ``folder``."""
    interval_ms: int = option(1_000, minimum=10)
    limit_bytes: int = 4096
    balance: int = 0
    ratio: float = option(0.5, minimum=0, maximum=1)
    wait_s: float = 1.5
    mode: Mode = Mode.SAFE
    level: Literal["low", "high", 3] = "low"
    topics: tuple[str, ...] = ()
    ports: tuple[int, ...] = option((), minimum=1, maximum=9)
    modes: list[Mode] = attrs.field(factory=list)
    targets: list[Target] = attrs.field(factory=list)
    labels: Mapping[str, int] = attrs.field(factory=dict)
    target: Target | None = None
    size: int | str = 0
    folder: Path = Path()
    rest: Any = None
    workers: int = attrs.field(default=1, validator=attrs.validators.ge(1))


MODELS: dict[str, type[Any]] = {"audit": Audit, "flush.turbo": Audit, "sink": Target}
CONVERTED = {
    "store.disk_max_used_ratio",
    "store.consume_queue_file_bytes",
    "store.commit_log_paths",
    "store.read_only_commit_log_paths",
    "store.topic_retention",
    "topic_retention",
}
"""The keys of the rule ``converted``."""

VALIDATORS: dict[Role, jsonschema.Draft202012Validator] = {
    role: jsonschema.Draft202012Validator(json_schema(MODELS, role)) for role in ("broker", "namesrv")
}


def refusal(text: str, role: Role = "broker") -> ConfigError | None:
    """What the loader says of a file, plugins' sections included."""
    try:
        loaded = load_text(text, role=role)
        loaded.check_claimed(MODELS)
        for name in loaded.sections:
            loaded.section(name, MODELS[name])
    except ConfigError as error:
        return error
    return None


def takes(document: object, role: Role = "broker") -> bool:
    return bool(VALIDATORS[role].is_valid(document))


def scalars(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from scalars(item)
    else:
        yield value


def rule_of(document: dict[str, Any], role: Role, error: ConfigError | None) -> str | None:
    """The rule by which schema and loader may differ over a document; None where they must not."""
    if error is None:
        refused = list(VALIDATORS[role].iter_errors(document))
        are_numbers = (
            one.validator == "type" and isinstance(one.instance, (bool, int, float)) and "pattern" in one.schema
            for one in refused
        )
        return "numbers as text" if all(are_numbers) else None
    found = list(scalars(document))
    if " sets already" in error.message or " is set twice" in error.message:
        return "twice"
    if error.__cause__ is not None:
        return "together"
    if error.key in CONVERTED:
        return "converted"
    has_text = any(isinstance(one, str) and re.search(r"\d", one) for one in found)
    if has_text and re.search(r"must be (-?\d+ to -?\d+|at least|at most|a whole number of)", error.message):
        return "text numbers"
    if any(isinstance(one, float) and one.is_integer() for one in found):
        return "fractions"
    return None


def agree(document: dict[str, Any], role: Role = "broker") -> None:
    error, taken = refusal(json.dumps(document, ensure_ascii=False), role), takes(document, role)
    if taken != (error is None):
        assert rule_of(document, role, error) in BEYOND, (document, str(error), taken)


# Values: of each type good ones and bad ones, with units and without, at the bounds and beside them.

WORDS = """|a|1|+5|-5|6_000|0x10|1.5|1e3|.5|5s|5S|1.5s|500ms|1500ms|2d|64KiB|10MB|4K|7b|true|NO|maybe|null|~|a,b|a..b|a.b:c
h:1|h:1,i:2|h:1;i:2|x=h:1|x=1|100=public|orders=24h|04|24|4;16|async_master|ASYNC_MASTER|Sync_Master|slave|enforcing|required|auto
safe|strict|parquet|SYNC_FLUSH|SYNC|fast|FAST|low|3|größe| | 8 |5 s|5\ts|64 kib| on |a b|a, b;c| 4 ; 23;|1s 5m|1s  5m
 ASYNC_FLUSH |a\u3000b|line\\n|two\\nlines"""
TEXTS = st.sampled_from([word.replace("\\n", "\n") for word in re.split(r"\||\n", WORDS)]) | st.text(
    "aZ0 _-./:;,=%|#é5msKB", max_size=12
)
NUMBERS = st.integers(-2, 130) | st.sampled_from([2**31, 2**63, 10**6, 1.5, 5.0, -0.5, 0.25, 1e-7])
SCALARS = TEXTS | NUMBERS | st.booleans() | st.none()
VALUES = (
    SCALARS
    | st.lists(SCALARS, max_size=3)
    | st.sampled_from([{}, {"a": 1}, {"host": "x"}, [{}], [{"host": "x"}], [[]]])
)


def likely(name: str) -> st.SearchStrategy[Any]:
    """Values that a key takes, or nearly: at its bounds and beside them, of its choices, in its unit, of its type."""
    key = KEYS[name]
    found: list[Any] = [*key.spec.choices, *(choice.upper() for choice in key.spec.choices)]
    for bound in (key.spec.minimum, key.spec.maximum):
        found += [] if bound is None else [bound - 1, bound, bound + 1, str(bound)]
    if key.spec.unit is not None:
        found += ["64KiB", "1 MB", "8b"] if key.spec.unit == "bytes" else ["5s", "10 m", "2d", "90m"]
    if key.hint is bool:
        found += [True, "yes", "OFF"]
    if key.hint in (str, str | None):
        found += ["a", "h:1", "1s 5m", "4;16", "a b", 5, 0.5, True]
    if isinstance(key.field.default, tuple):
        found += ["a,b", "h:1;i:2", "x=h:1", "100=public", ["a"], ["h:1", "i:2"], ["a b"], [5], 5, True]
    return st.sampled_from(found or [None, True, 5])


def spellings(name: str, role: Role) -> list[tuple[str, ...]]:
    """Every way to write a key: as nested keys, each of which may be dotted or RocketMQ's."""
    parts = name.split(".")
    found = [(name,), tuple(parts)]
    if len(parts) > 2:
        found += [(parts[0], ".".join(parts[1:])), (".".join(parts[:-1]), parts[-1])]
    for depth in range(len(parts)):
        section = ".".join(parts[:depth])
        for alias, names in aliases_in(section, role).items():
            if name in names and (not section or "." not in alias):
                found += [(*parts[:depth], alias), (f"{section}.{alias}" if section else alias,)]
    return found


def placed(document: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    """Puts a value at a path, into what is there already where that is a section."""
    for name in path[:-1]:
        if not isinstance(document.get(name), dict):
            document[name] = {}
        document = document[name]
    document[path[-1]] = value


@st.composite
def documents(draw: st.DrawFn, role: Role) -> dict[str, Any]:
    document: dict[str, Any] = {}
    names = draw(st.lists(st.sampled_from(sorted({*KEYS} - CONVERTED)), min_size=1, max_size=3, unique=True))
    for place, name in enumerate(names):  # one of them at most with anything: a mistake of one would hide the others'
        value = draw(likely(name) | VALUES) if place == 0 else VALIDATORS[role].schema["$defs"][name]["default"]
        placed(document, draw(st.sampled_from(spellings(name, role))), value)
    if draw(st.integers(0, 4)) == 0:
        where = draw(st.sampled_from(["", *SECTIONS]))
        what = draw(
            st.sampled_from([*COMPOSITES, "nope", "tls.server.mode", "brokerName", "path", "name.x", "port", "audit"])
        )
        placed(document, (*where.split("."), what) if where else (what,), draw(VALUES))
    return document


@settings(max_examples=examples(4_000))
@given(st.data(), st.sampled_from(["broker", "namesrv"]))
def test_schema_and_loader_accept_the_same_documents(data: st.DataObject, role: Role) -> None:
    """Any keys in any spelling with any values; a difference is a bug of one of the two, or a rule in the list."""
    agree(data.draw(documents(role)), role)


@settings(max_examples=examples(1_500))
@given(
    st.sampled_from(["audit", "flush.turbo"]),
    st.lists(st.tuples(st.sampled_from([*attrs.fields_dict(Audit), "nope"]), VALUES), max_size=2),
    st.booleans(),
)
def test_schema_and_loader_accept_the_same_plugin_sections(
    section: str, entries: list[tuple[str, Any]], is_dotted: bool
) -> None:
    """A plugin's author writes a class; its users' editors know it."""
    document: dict[str, Any] = {}
    for name, value in entries:
        placed(document, (f"{section}.{name}",) if is_dotted else (*section.split("."), name), value)
    agree(document)


@pytest.mark.parametrize("name", sorted(KEYS))
def test_the_schema_has_the_type_and_bounds_and_default_and_description_of_each_key(name: str) -> None:
    """At its default and at its bounds a key is taken, and one step beyond it is not; whatever its spelling."""
    key, found = KEYS[name], VALIDATORS["broker"].schema["$defs"][name]
    assert found["description"].startswith(key.doc.replace("``", "`"))
    assert refusal(json.dumps({name: found["default"]})) is None
    for path in spellings(name, "broker"):
        document: dict[str, Any] = {}
        placed(document, path, found["default"])
        assert takes(document), path
        placed(document, path, {"nested": 1})
        assert not takes(document), path
    if key.hint is int:
        assert (found["minimum"], found["maximum"]) == (key.spec.minimum, key.spec.maximum)
        assert [takes({name: bound}) for bound in (key.spec.minimum, key.spec.maximum)] == [True, True]
        assert not takes({name: key.spec.minimum - 1})  # type: ignore[operator]
        assert not takes({name: key.spec.maximum + 1})  # type: ignore[operator]
    if key.spec.choices:
        assert set(key.spec.choices) <= set(found["enum"])


def test_the_schema_is_valid_json_schema_of_its_declared_draft() -> None:
    """Editors choose their rules by it."""
    schema = json_schema(MODELS)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema


def test_every_dotted_key_and_every_rocketmq_setting_name_matches_a_pattern_in_the_json_schema() -> None:
    """Dotted and RocketMQ's names are taken; a list of four hundred names would be no help."""
    schema = json_schema(MODELS)
    assert set(schema["properties"]) == {name for name in (*KEYS, *SECTIONS) if "." not in name} | {"audit", "sink"}
    assert set(schema["$defs"]["flush"]["properties"]) >= {"strategy", "group_commit", "turbo"}
    names = {*aliases("broker"), *COMPOSITES, *(name for name in KEYS if "." in name), "audit.path", "flush.turbo.path"}
    for name in names:
        assert any(re.search(pattern, name) for pattern in schema["patternProperties"]), name


def test_the_schema_accepts_values_with_units() -> None:
    """``5s`` in a number's place is what people write."""
    found = VALIDATORS["broker"].schema["$defs"]
    assert found["store.commit_log_file_bytes"]["default"] == "1GiB"
    assert "64KiB" in found["store.commit_log_file_bytes"]["description"]
    assert (
        "a plain number is in ms. 1s to 1d. RocketMQ: serverChannel" in found["listen.idle_timeout_ms"]["description"]
    )
    assert takes({"listen": {"idle_timeout_ms": "5s"}, "store": {"commit_log_file_bytes": "64 MiB"}})
    assert not takes({"listen": {"idle_timeout_ms": "5 seconds"}})
    assert not takes({"store": {"commit_log_file_bytes": "64K"}})
    assert not takes({"listen": {"idle_timeout_ms": 999}})
    assert not takes({"serverChannelMaxIdleTimeSeconds": 0})
    assert takes({"serverChannelMaxIdleTimeSeconds": 1})
    assert not takes({"serverChannelMaxIdleTimeSeconds": 86_401})


def test_the_schema_describes_the_settings_class_of_a_plugin() -> None:
    """By the docstrings of its fields, with what is required and what is not."""
    found = VALIDATORS["broker"].schema["$defs"]
    assert found["audit"]["description"] == "What an audit writes."
    assert found["audit"]["properties"]["path"]["description"] == "The `folder`."
    assert found["audit"]["properties"]["interval_ms"]["default"] == "1s"
    assert found["audit"]["properties"]["mode"]["default"] == "safe"
    assert found["audit"]["properties"]["folder"]["default"] == "."
    assert found["sink"]["required"] == ["host"]
    assert "default" not in found["sink"]["properties"]["host"]
    assert not takes({"sink": {"port": 1}})
    assert not takes({"sink": None})
    assert takes(
        {"sink": {"host": "a"}, "audit": None, "audit.target.port": 5, "audit.labels.x": 1, "audit.rest.a.b": [1]}
    )
    assert not takes({"audit.target.nope": 5})


def test_the_schema_marks_secrets_as_write_only() -> None:
    """A tool that shows a configuration must not show them."""
    found = VALIDATORS["broker"].schema["$defs"]
    assert [name for name in KEYS if found[name].get("writeOnly")] == [name for name in KEYS if KEYS[name].spec.secret]


@attrs.frozen
class Tree:
    children: tuple[Tree, ...] = ()


def test_a_recursive_settings_class_has_a_finite_schema() -> None:
    """Not in an endless schema."""
    validator = jsonschema.Draft202012Validator(json_schema({"tree": Tree}))
    assert validator.is_valid({"tree": {"children": [{"children": [{}]}]}})
    assert not validator.is_valid({"tree": {"children": [{"childs": []}]}})


def test_a_field_of_an_unsupported_type_raises_type_error() -> None:
    """The loader says the same when the section is used."""

    @attrs.frozen
    class Odd:
        when: complex = 0j

    with pytest.raises(TypeError, match="complex"):
        json_schema({"odd": Odd})


DIFFERENCES: dict[str, tuple[str, bool]] = {
    "twice": ("{broker.id: 1, broker: {id: 2}}", True),
    "together": ("{broker: {role: slave, id: 0}}", True),
    "text numbers": ("{listen: {idle_timeout_ms: 1ms}}", True),
    "fractions": ("{listen: {port: 5.0}}", True),
    "numbers as text": ("{flush: {strategy: 1.5}}", False),
    "converted": ("{store: {disk_max_used_ratio: 100}}", False),
    "dotted sections": ("{sink.port: 5}", True),
    "yaml": ("{broker: {name: !!str x}}", True),
}
"""For each rule a file, and whether it is the schema that takes it."""


@pytest.mark.parametrize("rule", [*BEYOND, *(DIFFERENCES.keys() - BEYOND.keys())])
def test_each_known_difference_between_the_json_schema_and_the_loader_has_an_example_configuration(
    rule: str,
) -> None:
    """A rule that no file shows would only excuse mistakes."""
    assert rule in BEYOND
    text, taken = DIFFERENCES[rule]
    assert takes(yaml.safe_load(text)) is taken
    assert (refusal(text) is None) is not taken


def test_the_schema_allows_plugin_sections_only_at_the_top_level_and_in_the_flush_section() -> None:
    """A plugin's section elsewhere cannot be written, so it is not offered."""
    schema = json_schema({"listen.mine": Target, "a.b": Target, "mine": Target})
    assert OPEN_SECTIONS == ("", "flush")
    assert {"listen.mine", "a.b"} & schema["$defs"].keys() == set()
    assert "mine" in schema["properties"]
