"""``demo``: it runs through in one command, and its checks catch what they claim to catch."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from msgspec.structs import replace

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.record.host import offset_message_id, pack_host
from flintmq.core.record.properties import properties_to_string
from flintmq.programs.cli import demo
from flintmq.programs.cli.demo import _Sent, body_of, key_of, verify
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.client.send_result import SendResult, SendStatus

from .conftest import RunCommand

HOST = pack_host("127.0.0.1", 10911)


def test_the_demo_sends_and_verifies_messages_with_every_flush_strategy(cli: RunCommand, tmp_path: Path) -> None:
    """The first thing a new user runs must work, for every strategy, and leave what it was told to leave."""
    outcome = cli("demo", "--messages", 100, "--store", tmp_path / "d", "--json")
    assert outcome.code == 0, outcome.err
    shown = outcome.json
    assert shown["ok"] is True
    assert shown["kept"] is True
    assert [row["strategy"] for row in shown["strategies"]] == ["group_commit", "flush_real_time", "commit_real_time"]
    for row in shown["strategies"]:
        assert row["verified"] is True
        assert row["messages"] == 100
        assert (row["found_by_key"], row["found_by_id"]) == (demo.LOOK_UPS, demo.LOOK_UPS)
        assert (tmp_path / "d" / row["strategy"] / "commitlog").is_dir()
    assert cli("demo", "--store", tmp_path / "d").code == 2, "an old store is not a fresh one"


def _sent_and_came(count: int = 6) -> tuple[list[_Sent], list[MessageExt]]:
    sent, came = [], []
    for number in range(count):
        queue = MessageQueue("b", 0, demo.TOPIC)
        msg_id = f"ID{number}"
        result = SendResult(SendStatus.SEND_OK, msg_id, offset_message_id(HOST.hex().upper(), number), queue, number)
        sent.append(_Sent(number, 0, result))
        came.append(
            MessageExt(
                topic=demo.TOPIC,
                body=body_of("s", number),
                properties_bytes=properties_to_string({"UNIQ_KEY": msg_id, "KEYS": key_of(number)}).encode(),
                queue_id=0,
                queue_offset=number,
                broker_name="b",
                commit_log_offset_bytes=number,
                store_size_bytes=0,
                flag=0,
                sys_flag=0,
                born_timestamp_ms=0,
                born_host_bytes=b"",
                store_timestamp_ms=0,
                store_host_bytes=HOST,
                reconsume_times=0,
                prepared_transaction_offset_bytes=0,
            )
        )
    return sent, came


def _problems(sent: list[_Sent], came: list[MessageExt]) -> str:
    problems: list[str] = []
    verify("s", sent, came, problems)
    return "; ".join(problems)


def test_the_demo_check_accepts_correct_messages() -> None:
    """The control: the planted faults below are what is found."""
    assert _problems(*_sent_and_came()) == ""


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("lost", "1 of 6 messages did not come back"),
        ("twice", "came twice"),
        ("body", "another body or key"),
        ("id", "another id"),
        ("order", "out of order"),
        ("invented", "never acknowledged"),
    ],
)
def test_the_demo_check_finds_lost_repeated_changed_and_reordered_messages(fault: str, said: str) -> None:
    """A check that cannot fail checks nothing."""
    sent, came = _sent_and_came()
    if fault == "lost":
        del came[2]
    elif fault == "twice":
        came.append(came[2])
    elif fault == "body":
        came[2] = replace(came[2], body=b"other")
    elif fault == "id":
        came[2] = replace(came[2], commit_log_offset_bytes=9)
    elif fault == "order":
        first, second = sent[1], sent[2]
        sent[1], sent[2] = attrs.evolve(first, number=2), attrs.evolve(second, number=1)
    else:
        came.append(replace(came[2], queue_offset=99))
    assert said in _problems(sent, came)
