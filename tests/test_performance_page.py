"""The pages with measurements (performance, performance-compared, store-benchmarks) describe the code as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import attrs
import pytest

import flintmq
from flintmq.config.loading.schema import KEYS
from flintmq.config.sections.models import BrokerConfig
from flintmq.core import limits
from flintmq.core.broker.stats_table import _SERIES
from flintmq.dispatchers.index.index_bulk import LEAST
from flintmq.flush.real_time import CommitRealTime
from flintmq.plugins.retention.plugin import RESIDENT_MAX_BYTES
from flintmq.programs.bench.recover import RecoverResult
from flintmq.programs.cli.bench_flush import flush
from flintmq.remoting.processors.answers import SLICE_S

ROOT: Final = Path(str(flintmq.__file__)).resolve().parent
PAGE: Final = " ".join(
    " ".join(
        (ROOT / "docs" / name).read_text("utf-8") for name in ("performance.md", "performance-compared.md")
    ).split()
)
STORES: Final = (ROOT / "docs" / "store-benchmarks.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("when there are 64 index entries to write at once", LEAST == 64),
        ("at most 128 MiB of mapped files", RESIDENT_MAX_BYTES == 128 * 2**20),
        ("are made in slices of 4 ms", SLICE_S == 0.004),
        ("(16 MiB a frame)", limits.FRAME_MAX_BYTES == 16 * 2**20),
        ("the thread rests for 10 ms after each", CommitRealTime.rest_s == 0.01),
        ("39 snapshots of 24 bytes at most", sum(kept for _, kept in _SERIES) == 39),
    ],
)
def test_numbers_stated_on_the_performance_page_equal_the_values_in_the_code(text: str, holds: bool) -> None:
    """A bound that is changed in the code is changed on the page."""
    assert text in PAGE
    assert holds


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("it does so every 500 ms now, as RocketMQ's does by default (`flush_timed`)", "flush_interval_ms", 500),
        ("as RocketMQ's does by default (`flush_timed`)", "flush_timed", True),
    ],
)
def test_the_performance_page_states_the_default_flush_settings_of_the_transient_store_pool(
    text: str, key: str, value: object
) -> None:
    assert text in PAGE
    assert KEYS[f"flush.commit_real_time.{key}"].value_of(BrokerConfig()) == value


def test_log_files_are_not_warmed_by_default() -> None:
    assert "It is off by default" in PAGE
    assert KEYS["store.warm"].value_of(BrokerConfig()) is False
    assert KEYS["listen.loop"].value_of(BrokerConfig()) == "asyncio"


def test_the_performance_page_states_the_default_load_of_the_flush_benchmark() -> None:
    """The table has no options for writers and size: they are the defaults."""
    assert "Each of 32 writers puts messages of 1,024 bytes, and waits" in PAGE
    defaults = {option.name: option.default for option in flush.params}
    assert (defaults["threads"], defaults["size_bytes"]) == (32, 1_024)


def test_each_source_file_mentioned_on_the_performance_page_exists() -> None:
    named = set(re.findall(r"`([a-z_]+/[\w/-]+\.(?:py|sh))`", PAGE))
    assert len(named) > 5
    assert {text for text in named if not (ROOT / text).is_file()} == set()


def test_the_recovery_benchmark_result_in_the_documentation_has_the_fields_of_a_real_result() -> None:
    (line,) = re.findall(r"^\{\"bench\": \"recover\".*\}$", STORES, re.M)
    assert list(json.loads(line)) == ["bench", *(field.name for field in attrs.fields(RecoverResult)), "machine"]
