"""Whoever begins copies one of these files, so each must load, say why, and do what it promises."""

from __future__ import annotations

import pytest

from flintmq.config import load_text
from flintmq.config.loading.schema import KEYS
from flintmq.config.loading.show import HIDDEN, display, yaml_tree
from flintmq.config.purposes import PURPOSES, starting_yaml


@pytest.mark.parametrize("purpose", PURPOSES)
def test_each_generated_configuration_loads_and_has_a_comment_above_each_setting(purpose: str) -> None:
    """Every setting arrives; each stands below the sentence that says why."""
    text = starting_yaml(purpose)
    loaded = load_text(text)
    assert loaded.ignored == ()
    choices = PURPOSES[purpose].choices
    assert {name for name, origin in loaded.origins.items() if origin.kind == "file"} == {one.key for one in choices}
    assert len({one.key for one in choices}) == len(choices)
    lines = text.splitlines()
    for choice in choices:
        assert choice.why.endswith("."), choice.key
        line = loaded.origins[choice.key].line
        assert line is not None
        assert lines[line - 2].lstrip().startswith("# "), choice.key
    assert max(len(line) for line in lines if not line.startswith("#   flintmq ")) <= 104
    assert lines[0].startswith("# ")
    assert "yaml-language-server" not in text


def test_only_the_configuration_generated_for_development_uses_asynchronous_flush() -> None:
    """The promises of their first paragraphs."""
    configs = {purpose: load_text(starting_yaml(purpose)).config for purpose in PURPOSES}
    assert configs.keys() == {"development", "durable", "replicated", "edge"}
    synced = {purpose for purpose, config in configs.items() if config.flush.strategy == "group_commit"}
    assert synced == {"durable", "replicated", "edge"}
    assert {purpose for purpose, config in configs.items() if config.replicates} == {"replicated"}
    assert configs["edge"].store.retention_bytes == 512 * 1024 * 1024
    assert all(config.listen.host == "127.0.0.1" and not config.listen.insecure for config in configs.values())


def test_each_configuration_generated_for_replication_has_a_new_secret() -> None:
    """One that came with the program would be known to everyone."""
    secrets = [load_text(starting_yaml("replicated")).config.ha.secret for _ in range(2)]
    assert all(secret is not None and len(secret) == 64 for secret in secrets)
    assert secrets[0] != secrets[1]
    assert display(secrets[0], KEYS["ha.secret"].spec) == HIDDEN
    assert [purpose for purpose in PURPOSES if PURPOSES[purpose].has_secret] == ["replicated"]


def test_the_first_line_of_a_generated_configuration_names_the_schema() -> None:
    """The language server of YAML looks there."""
    text = starting_yaml("edge", "../flintmq.schema.json")
    assert text.splitlines()[0] == "# yaml-language-server: $schema=../flintmq.schema.json"
    assert load_text(text).config == load_text(starting_yaml("edge")).config


def test_comments_in_generated_yaml_are_written_above_their_keys() -> None:
    """A comment beside another key would explain the wrong one."""
    made = yaml_tree({"a.b": "1", "a.c.d": "x"}, {"a.b": "why b", "a.c.d": "word " * 30})
    assert made.splitlines()[:4] == ["a:", "  # why b", "  b: 1", "  c:"]
    assert [line[:11] for line in made.splitlines()[4:]] == ["    # word ", "    # word ", "    d: x"]
