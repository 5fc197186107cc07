"""``config init`` and ``config schema``: files to begin with, and what editors know of them."""

from __future__ import annotations

import contextlib
import json
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml

import flintmq
from flintmq.config.purposes import PURPOSES
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.errors import RefusedError
from flintmq.core.response_code import ResponseCode

from .conftest import RunCommand
from .test_config_commands import WITH_SECTION

QUICK = (
    "listen.port=0",
    "listen.vip=false",
    "listen.ha_port=0",
    "ha.reconnect_interval_ms=50",
    "index.max_hash_slot_num=1000",
    "index.max_index_num=4000",
    "store.commit_log_file_bytes=1MiB",
)


def started_from(file: Path, folder: Path, *overrides: str) -> flintmq.Broker:
    """A broker of a file, in a folder and at ports of the test."""
    return flintmq.Broker(flintmq.load_config(file, [*QUICK, f"store.path={folder}", *overrides], {}))


@pytest.mark.parametrize("purpose", PURPOSES)
def test_the_file_written_by_config_init_is_valid_and_starts_a_broker(
    cli: RunCommand, tmp_path: Path, purpose: str
) -> None:
    """Checked without a word, taken by its own schema, and enough for a broker that keeps its promise."""
    file, schema = tmp_path / "broker.yaml", tmp_path / "flintmq.schema.json"
    made = cli("config", "init", "--for", purpose, "--output", file, "--schema", schema)
    assert (made.code, made.out) == (0, ""), made.err
    checked = cli("config", "check", file)
    assert (checked.code, checked.err) == (0, "")
    assert f"{len(PURPOSES[purpose].choices)} settings" in checked.out
    assert file.read_text().splitlines()[0] == "# yaml-language-server: $schema=./flintmq.schema.json"
    jsonschema.Draft202012Validator(json.loads(schema.read_text())).validate(yaml.safe_load(file.read_text()))
    with started_from(file, tmp_path / "store") as broker:
        KEEPS_ITS_PROMISE[purpose](broker, file)


def stores(broker: flintmq.Broker, _file: Path) -> None:
    """It takes a message of a topic that nobody has made."""
    assert len(broker.put([ORDER])) == 1


def takes_known_topics_only(broker: flintmq.Broker, _file: Path) -> None:
    """A misspelt topic is refused, one that was made is not."""

    async def make() -> None:
        broker.state.topics.put(TopicConfig.with_queues("Orders", 4))

    with pytest.raises(RefusedError, match="Orders"):
        broker.put([ORDER])
    broker.call(make)
    assert len(broker.put([ORDER])) == 1


def waits_for_its_slave(broker: flintmq.Broker, file: Path) -> None:
    """Without one nothing is acknowledged; the same file makes the slave."""
    with pytest.raises(RefusedError) as refused:
        broker.put([ORDER])
    assert refused.value.code == ResponseCode.SLAVE_NOT_AVAILABLE
    said = [word for word in re.findall(r"--set (\S+)", file.read_text()) if not word.startswith("listen.")]
    assert said == ["broker.role=slave", "broker.id=1"]
    with started_from(file, file.parent / "slave", *said, f"ha.master_address=127.0.0.1:{broker.ha_port}"):
        until_s = time.monotonic() + 20
        acknowledged = False
        while not acknowledged:  # it takes a moment until the slave is there
            assert time.monotonic() < until_s, "no slave holds anything"
            with contextlib.suppress(RefusedError):
                acknowledged = len(broker.put([ORDER])) == 1


ORDER = flintmq.Message("Orders", b"hello")
KEEPS_ITS_PROMISE = {
    "development": stores,
    "durable": takes_known_topics_only,
    "replicated": waits_for_its_slave,
    "edge": stores,
}


def test_config_init_prints_the_configuration_if_no_output_file_is_given(cli: RunCommand, tmp_path: Path) -> None:
    """For a pipe, or for a look; the schema would have no place to be seen from."""
    printed = cli("config", "init", "--for", "edge")
    assert printed.code == 0
    assert printed.out.startswith("# A broker on a small machine")
    refused = cli("config", "init", "--for", "edge", "--schema", tmp_path / "s.json")
    assert (refused.code, "--schema needs --output" in refused.err) == (2, True)
    assert cli("config", "init", "--for", "fun").code == 2
    assert cli("config", "init").code == 2
    assert not (tmp_path / "s.json").exists()


def test_config_init_does_not_overwrite_a_file(cli: RunCommand, tmp_path: Path) -> None:
    """It may hold a year of an operator's decisions."""
    file = tmp_path / "broker.yaml"
    file.write_text("broker: {name: mine}\n")
    refused = cli("config", "init", "--for", "durable", "-o", file, "--schema", tmp_path / "s.json")
    assert refused.code == 1
    assert f"{file} exists and was not changed" in refused.err
    assert file.read_text() == "broker: {name: mine}\n"
    assert "No such file" in cli("config", "init", "--for", "durable", "-o", tmp_path / "no" / "b.yaml").err
    unwritable = cli(
        "config", "init", "--for", "edge", "-o", tmp_path / "e.yaml", "--schema", tmp_path / "no" / "s.json"
    )
    assert (unwritable.code, "No such file" in unwritable.err) == (1, True)


def test_config_init_updates_an_existing_schema_file(
    cli: RunCommand, tmp_path: Path, plugin_module: Callable[[str, str], str]
) -> None:
    """After an update an editor must know the new keys, and those of the plugins that the file has come to name."""
    file, schema = tmp_path / "broker.yaml", tmp_path / "s.json"
    again = ("config", "init", "--for", "durable", "-o", file, "--schema", schema)
    assert cli(*again).code == 0
    target = plugin_module("cli_schema_again_plugin", WITH_SECTION)
    with file.open("a") as stream:
        stream.write(f"plugins: ['{target}']\n")
    before = file.read_text()
    for old in ("", '{"$schema": "an old one"}'):
        schema.write_text(old)
        outcome = cli(*again)
        assert (outcome.code, f"the schema {schema} was written" in outcome.err) == (1, True)
        assert "sectioned" in json.loads(schema.read_text())["properties"]
    assert file.read_text() == before


def test_config_init_refuses_to_write_the_json_schema_over_a_file_that_is_no_schema(
    cli: RunCommand, tmp_path: Path
) -> None:
    """A mistyped --schema must not cost a configuration, not even the one that is just being written."""
    notes, file = tmp_path / "notes.yaml", tmp_path / "b.yaml"
    notes.write_text("broker: {name: mine}\n")
    for schema in (notes, file):
        refused = cli("config", "init", "--for", "edge", "-o", file, "--schema", schema)
        assert (refused.code, "is not a JSON Schema" in refused.err) == (1, True)
    assert notes.read_text() == "broker: {name: mine}\n"
    assert cli("config", "check", file).code == 0


def test_config_init_gives_mode_600_to_a_configuration_file_that_contains_a_secret(
    cli: RunCommand, tmp_path: Path
) -> None:
    """Who knows the secret of replication can take a slave's place and read the log."""
    cli("config", "init", "--for", "replicated", "-o", tmp_path / "pair.yaml")
    assert stat.S_IMODE((tmp_path / "pair.yaml").stat().st_mode) == 0o600


def test_the_yaml_file_names_the_json_schema_by_its_relative_path(cli: RunCommand, tmp_path: Path) -> None:
    """Both may be moved together; a blank would end the name."""
    for folder in ("conf", "my schemas"):
        (tmp_path / folder).mkdir()
    file = tmp_path / "conf" / "b.yaml"
    assert cli("config", "init", "--for", "edge", "-o", file, "--schema", tmp_path / "my schemas" / "s.json").code == 0
    assert file.read_text().splitlines()[0] == "# yaml-language-server: $schema=../my%20schemas/s.json"


def test_the_json_schema_includes_the_configuration_sections_of_plugins(
    cli: RunCommand, tmp_path: Path, plugin_module: Callable[[str, str], str]
) -> None:
    """Of those that the file names; a misspelt key in them is refused as in any other section."""
    target = plugin_module("cli_schema_plugin", WITH_SECTION)
    file = tmp_path / "b.yaml"
    file.write_text(f"plugins: ['{target}']\n")
    plain = jsonschema.Draft202012Validator(cli("config", "schema").json)
    with_plugin = jsonschema.Draft202012Validator(cli("config", "schema", "-c", file).json)
    assert not plain.is_valid({"sectioned": {"level": 5}})
    assert with_plugin.is_valid({"sectioned": {"level": 5}})
    assert not with_plugin.is_valid({"sectioned": {"levle": 5}})
    file.write_text("plugins: [no.such:thing]\n")
    assert cli("config", "schema", "-c", file).code == 2


def test_broker_and_name_server_schemas_map_the_rocketmq_key_listenport_to_different_settings(
    cli: RunCommand,
) -> None:
    """RocketMQ's kvConfigPath is a setting of both; its listenPort has other bounds by nothing but its place."""
    for role, key in (("broker", "listen.port"), ("namesrv", "nameserver.port")):
        schema = cli("config", "schema", "--role", role).json
        targets = [target for pattern, target in schema["patternProperties"].items() if "|listenPort" in pattern]
        assert {"$ref": f"#/$defs/{key}"} in targets
