"""How folders and files of a landing zone are called."""

from __future__ import annotations

import hashlib
import re
from datetime import date, timedelta
from typing import Final

MANIFEST_FOLDER: Final = "_flintmq"
"""Readers pass over names that begin with an underscore."""
NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, Spark and pyarrow read as null."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]")
_VALUE_BYTES_MAX: Final = 200
_EPOCH: Final = date(1970, 1, 1)


def topic_folder(topic: str) -> str:
    """``topic=Orders``; any character but letters, digits, ``-`` and ``_`` is written as ``%25``, which readers decode.

    A topic comes from clients and may hold anything in a store of another maker: no name made of it leaves the zone. One too
    long for a file system ends in a hash; the manifest has its name.
    """
    value = "".join(
        one if _PLAIN.fullmatch(one) else "".join(f"%{byte:02X}" for byte in one.encode("utf-8", "replace"))
        for one in topic
    )
    if len(value) > _VALUE_BYTES_MAX:
        value = f"{value[:150]}-{hashlib.sha256(topic.encode('utf-8', 'replace')).hexdigest()[:32]}"
    return f"topic={value}" if value else f"topic={NO_DATE}"


def date_folder(day: int | None) -> str:
    """``date=2026-11-22`` for a number of days since 1970 (UTC)."""
    if day is None:
        return f"date={NO_DATE}"
    return f"date={_EPOCH + timedelta(days=day)}"


def part_name(start_offset_bytes: int, end_offset_bytes: int) -> str:
    """The file of one commit in one partition: the stretch of the log it comes from."""
    return f"part-{start_offset_bytes:020d}-{end_offset_bytes:020d}.parquet"
