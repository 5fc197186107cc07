"""A setting that nobody reads is a promise nobody keeps: every key must be read somewhere outside ``config/``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import flintmq
from flintmq.config.loading.schema import KEYS

ROOT = Path(str(flintmq.__file__)).parent
READERS = ("core", "dispatchers", "flush", "remoting", "plugins", "programs")

ELSEWHERE = {
    "store.topic_retention": "store.topic_retention_ms",
    **{
        name: 'f"{name}_queue"'  # Broker.pool: one for each pool of request processors
        for name in KEYS
        if name.startswith("admission.") and name.endswith("_queue")
    },
}
"""Keys that are read under another name, and what the source says instead."""


@pytest.fixture(scope="module")
def source() -> str:
    files = [path for folder in READERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return "\n".join(path.read_text("utf-8") for path in files)


@pytest.mark.parametrize("name", sorted(KEYS))
def test_every_configuration_key_is_read_by_the_code(name: str, source: str) -> None:
    said = ELSEWHERE.get(name)
    if said is not None:
        assert said in source
        return
    leaf = re.escape(name.rpartition(".")[2])
    assert re.search(rf"\.{leaf}\b(?!\s*=[^=])|[\"']{leaf}[\"']", source), (
        f"{name} is in the configuration, and nothing reads it"
    )
