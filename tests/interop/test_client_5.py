"""Client and tools of RocketMQ 5 work by their remoting protocol, though the protocol spoken here is that of 4.9."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.testing.embedded import EmbeddedBroker

from .peer import PEER, fetch_jars

TOPIC, GROUP, OTHER = "Five", "five_readers", "five_others"
LINE_5 = {"PEER_LINE": "5", "PEER_VERSION": ""}
PROGRAM = Path(__file__).with_name("LitePull5.java")
_RUN_S = 120


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    fetch_jars(LINE_5)
    with EmbeddedBroker() as running:
        running.create_topic(TOPIC, 4)
        yield running


def run(script: str, folder: Path) -> str:
    """What a shell prints that knows the jars and the JVM of the peer kit."""
    prepared = f'. "{PEER}/common.sh"; need_jars; {script}'
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(Path.home()), "JAVA_TOOL_OPTIONS": "", **LINE_5}
    done = subprocess.run(
        ["bash", "-c", prepared],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    return done.stdout + done.stderr


def mqadmin(broker: EmbeddedBroker, folder: Path, command: str) -> str:
    return run(f'"{PEER}/mqadmin.sh" {command} -n {broker.name_server_address}', folder)


@pytest.mark.slow
@pytest.mark.java
def test_the_lite_pull_consumer_and_tools_of_rocketmq_5_work_with_a_flintmq_broker(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Its lite pull consumer pulls by 361, its mqadmin asks for one topic or group by 351 and 352."""
    names, address = broker.name_server_address, broker.address
    java = f'exec "$JAVA" -Xmx256m "${{OPENS[@]}}" -cp "$JARS/*" "{PROGRAM}" {names} {address} {TOPIC} {GROUP}'
    printed = run(java, tmp_path)
    told = dict(re.findall(r"^([A-Z]+)(?: (.*))?$", printed, re.MULTILINE))
    assert (told.get("GOT"), told.get("HELD"), "END" in told) == ("true", "later", True), printed[-3000:]
    assert "topicName=Five, readQueueNums=4, writeQueueNums=4, perm=RW-" in told["TOPIC"]
    assert told["GROUP"] == f"{GROUP} 16 15"
    assert "[topic.missing]" in told["MISSING"]

    status = mqadmin(broker, tmp_path, f"topicStatus -t {TOPIC}")
    assert len(re.findall(r"^\S+ +[0-3] +0 +\d+ ", status, re.MULTILINE)) == 4, status
    progress = mqadmin(broker, tmp_path, f"consumerProgress -g {GROUP}")
    assert re.search(r"^Consume Diff Total: 0$", progress, re.MULTILINE), progress
    assert progress.count(f"{TOPIC} ") >= 4, progress
    cloned = mqadmin(broker, tmp_path, f"cloneGroupOffset -s {GROUP} -d {OTHER} -t {TOPIC} -o true")
    assert "clone group offset success" in cloned, cloned
    offsets = broker.broker.state.offsets
    assert offsets.query_all(TOPIC, OTHER) == offsets.query_all(TOPIC, GROUP) != {}

    refused = mqadmin(broker, tmp_path, f"setConsumeMode -b {address} -t {TOPIC} -g {GROUP} -m POP -q 8")
    assert "pop consumption is of RocketMQ 5" in refused, refused
