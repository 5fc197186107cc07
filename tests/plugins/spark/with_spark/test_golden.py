"""Spark reads the stores that the real broker wrote to exactly the rows of their dumps."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

STORES = ["store-basic", "store-delay-tran:before", "store-delay-tran:after", "store-cqext", "store-crash"]


def address(text: str) -> str:
    """``ip:port`` of a dump as a row has it."""
    ip, _, port = text.rpartition(":")
    plain = str(ipaddress.ip_address(ip.strip("[]/").partition("%")[0]))
    return f"[{plain}]:{port}" if ":" in plain else f"{plain}:{port}"


def expected(entry: dict[str, Any]) -> dict[str, Any]:
    """A record of a dump in the words of a row, of a read with rawBody."""
    properties = entry["properties"]
    return {
        **{
            name: entry[name]
            for name in ("topic", "queueId", "queueOffset", "storeSize", "flag", "sysFlag", "reconsumeTimes")
        },
        "physicalOffset": entry["commitLogOffset"],
        "bodyCrc": entry["bodyCRC"],
        "bornTimestamp": entry["bornTimestamp"],
        "storeTimestamp": entry["storeTimestamp"],
        "bornHost": address(entry["bornHost"]),
        "storeHost": address(entry["storeHost"]),
        "preparedTransactionOffset": entry["preparedTransactionOffset"],
        "properties": properties,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "uniqKey": properties.get("UNIQ_KEY"),
        "body": hashlib.sha256(base64.b64decode(entry["body_b64"])).hexdigest()
        if "body_b64" in entry
        else entry["body_sha256"],
    }


def found(row: Any) -> dict[str, Any]:
    """A row in comparable values."""
    values: dict[str, Any] = row.asDict()
    del values["msgId"], values["brokerName"]
    for name in ("bornTimestamp", "storeTimestamp"):
        moment: datetime = values[name]
        values[name] = round(moment.astimezone(UTC).timestamp() * 1000)
    values["body"] = hashlib.sha256(bytes(values["body"])).hexdigest()
    return values


@pytest.mark.parametrize("name", STORES)
def test_spark_reads_the_same_rows_that_rocketmq_dumped_from_the_store(
    spark: Any, load_golden: Callable[[str], Any], name: str, tmp_path: Path
) -> None:
    """All columns of all visible messages; prepared and rolled-back ones are not there; by topic the same."""
    golden = load_golden(name)
    root = golden.unpack(tmp_path / "store")
    wanted = [expected(entry) for entry in golden.records if not entry["sysFlag"] & 4]

    def read(**options: str) -> list[dict[str, Any]]:
        frame = spark.read.format("flintmq").options(includeSystemTopics=True, rawBody=True, **options).load(str(root))
        return [found(row) for row in frame.orderBy("physicalOffset").collect()]

    assert read() == wanted
    topic = wanted[-1]["topic"]
    assert read(subscribe=topic, maxPartitionBytes="2000") == [row for row in wanted if row["topic"] == topic]


def test_spark_returns_the_decompressed_bodies_of_compressed_messages(
    spark: Any, load_golden: Callable[[str], Any], tmp_path: Path
) -> None:
    """zlib, lz4 and zstd are undone: each message's body is the one that the client was given."""
    golden = load_golden("store-basic")
    root = golden.unpack(tmp_path / "store")
    rows = spark.read.format("flintmq").load(str(root)).select("topic", "queueId", "queueOffset", "body").collect()
    bodies = {(row.topic, row.queueId, row.queueOffset): bytes(row.body) for row in rows}
    compressed = spark.read.format("flintmq").load(str(root)).where("sysFlag % 2 = 1").count()
    assert compressed >= 3
    raw = spark.read.format("flintmq").option("rawBody", True).load(str(root)).where("sysFlag % 2 = 1")
    for row in raw.collect():
        assert len(bodies[row.topic, row.queueId, row.queueOffset]) > len(row.body)
