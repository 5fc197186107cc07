"""A reader of configuration files that is as strict as Java's types: whatever it takes, the real broker can load."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

from flintmq.core.io import fastjson

INT = ("int", -(2**31), 2**31 - 1)
LONG = ("long", -(2**63), 2**63 - 1)
VERSION = {"counter": LONG, "timestamp": LONG}
TOPIC = {
    "order": bool,
    "perm": INT,
    "readQueueNums": INT,
    "topicFilterType": {"SINGLE_TAG", "MULTI_TAG"},
    "topicName": str,
    "topicSysFlag": INT,
    "writeQueueNums": INT,
}
GROUP = {
    "brokerId": LONG,
    "consumeBroadcastEnable": bool,
    "consumeEnable": bool,
    "consumeFromMinEnable": bool,
    "groupName": str,
    "notifyConsumerIdsChangedEnable": bool,
    "retryMaxTimes": INT,
    "retryQueueNums": INT,
    "whichBrokerWhenConsumeSlowly": LONG,
}
FILTER = {
    "bloomFilterData": {"bitNum": INT, "bitPos": [INT]},
    "bornTime": LONG,
    "clientVersion": LONG,
    "consumerGroup": str,
    "dead": bool,
    "deadTime": LONG,
    "expression": str,
    "expressionType": str,
    "topic": str,
}
FILES: dict[str, Any] = {
    "topics.json": {"dataVersion": VERSION, "topicConfigTable": ("map", str, TOPIC)},
    "subscriptionGroup.json": {"dataVersion": VERSION, "subscriptionGroupTable": ("map", str, GROUP)},
    "consumerOffset.json": {"offsetTable": ("map", str, ("map", INT, LONG))},
    "delayOffset.json": {"offsetTable": ("map", INT, LONG)},
    "consumerFilter.json": {"filterDataByTopic": ("map", str, {"groupFilterData": ("map", str, FILTER), "topic": str})},
}


def check_file(file: Path) -> None:
    """Raises AssertionError for a file that is not of Java's types."""
    if file.name in FILES:
        _check(fastjson.loads(file.read_bytes()), FILES[file.name], file.name)


def _check(value: Any, kind: Any, where: str) -> None:
    if isinstance(kind, dict):
        assert isinstance(value, dict), f"{where}: {value!r}"
        for name, member in value.items():
            assert name in kind, f"{where}: {name}"
            _check(member, kind[name], f"{where}.{name}")
    elif isinstance(kind, list):
        assert isinstance(value, list), f"{where}: {value!r}"
        for item in value:
            _check(item, kind[0], where)
    elif isinstance(kind, set):
        assert value in kind, f"{where}: {value!r}"
    elif isinstance(kind, tuple) and kind[0] == "map":
        assert isinstance(value, dict), f"{where}: {value!r}"
        for key, member in value.items():
            _check(key, kind[1], f"{where} (a key)")
            _check(member, kind[2], f"{where}.{key}")
    elif isinstance(kind, tuple):
        assert type(value) is int, f"{where}: {value!r}"
        assert kind[1] <= value <= kind[2], f"{where}: {value}"
    else:
        assert type(value) is kind, f"{where}: {value!r}"


def parse(text: str, bits: int) -> int | None:
    """What ``Integer.parseInt`` (32 bits) and ``Long.parseLong`` (64) return; None where they throw NumberFormatException.

    As their source has it: a character at a time, 16 bits each, through ``Character.digit``.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    characters = [chr(int.from_bytes(units[at : at + 2], "big")) for at in range(0, len(units), 2)]
    sign = -1 if characters[:1] == ["-"] else 1
    digits = characters[1:] if characters[:1] in (["-"], ["+"]) else characters
    if not digits:
        return None
    value = 0
    for character in digits:
        digit = unicodedata.decimal(character, None)
        if digit is None:
            return None
        value = value * 10 + digit
        if value > 2 ** (bits - 1):
            return None
    return sign * value if -(2 ** (bits - 1)) <= sign * value < 2 ** (bits - 1) else None
