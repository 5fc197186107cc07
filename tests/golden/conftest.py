"""What the golden tests share: stores that RocketMQ wrote, unpacked into a folder of their own."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

import flintmq
from flintmq.config.loading.load import load_text
from flintmq.config.rocketmq.importing import import_broker_conf
from flintmq.config.sections.models import BrokerConfig
from flintmq.core.store.message_store import MessageStore
from flintmq.core.store.opened_store import StoreSpec
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import open_store, store_spec

NOW_MS = 1_800_000_000_000
"""Later than anything RocketMQ stored."""


def golden_folder() -> Path:
    """``golden`` in the folder FLINTMQ_SHARED names, or in ``shared`` beside the repository."""
    shared = os.environ.get("FLINTMQ_SHARED")
    return (Path(shared) if shared else Path(str(flintmq.__file__)).parent.parent / "shared") / "golden"


@attrs.frozen
class GoldenStore:
    """One archive, with what RocketMQ said about it."""

    archive: Path
    manifest: dict[str, Any]
    """The whole manifest of the set."""
    part: dict[str, Any]
    """The part of it that belongs to this archive."""
    dump: dict[str, Any]

    def unpack(self, folder: Path) -> Path:
        """A fresh copy of the store."""
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(self.archive) as archive:
            archive.extractall(folder, filter="data")
        return folder

    @property
    def records(self) -> list[dict[str, Any]]:
        return [entry for entry in self.dump["commitlog"] if "topic" in entry]

    @property
    def log_end(self) -> int:
        last = self.records[-1]
        return int(last["commitLogOffset"] + last["storeSize"])

    def _config(self) -> BrokerConfig:
        """The configuration the store was made with, without what would write more than the test asks for."""
        lines = [line for line in self.manifest["brokerProperties"] if not line.startswith("enableConsumeQueueExt")]
        return load_text(import_broker_conf("\n".join(lines)).yaml).config

    def spec(self, folder: Path) -> StoreSpec:
        """What a store on an unpacked copy is opened from."""
        return store_spec(folder, clock=ManualClock(NOW_MS), config=self._config())

    def open(self, folder: Path, **options: Any) -> MessageStore:
        """An open, started store on an unpacked copy; ``options`` are further settings of the section ``store``."""
        return open_store(folder, clock=ManualClock(NOW_MS), config=self._config(), **options)

    def rebuild(self, folder: Path) -> Path:
        """A copy whose queues and index were deleted and made anew from the log."""
        self.unpack(folder)
        shutil.rmtree(folder / "consumequeue")
        shutil.rmtree(folder / "index")
        self.open(folder).close()
        return folder


_CACHE: dict[str, GoldenStore] = {}


def _load(name: str) -> GoldenStore:
    """``set`` or ``set:part`` where a set has several archives."""
    if name not in _CACHE:
        set_name, _, part = name.partition(":")
        folder = golden_folder() / set_name
        if not folder.is_dir():
            pytest.skip(f"the golden stores are not at {folder} (set FLINTMQ_SHARED)")
        manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
        portion = manifest[part] if part else manifest
        with gzip.open(folder / portion["dump"], "rt", encoding="utf-8") as file:
            dump = json.load(file)
        archive = folder / (f"store-{part}.tar.gz" if part else "store.tar.gz")
        _CACHE[name] = GoldenStore(archive, manifest, portion, dump)
    return _CACHE[name]


@pytest.fixture
def load_golden() -> Callable[[str], GoldenStore]:
    """Loads a set by name; skips where the golden data are absent."""
    return _load


@pytest.fixture(params=["store-basic", "store-delay-tran:before", "store-delay-tran:after", "store-cqext"])
def clean(request: pytest.FixtureRequest) -> GoldenStore:
    """Each store that RocketMQ stopped cleanly."""
    return _load(request.param)


@pytest.fixture
def crash() -> GoldenStore:
    """The store that a kill -9 left."""
    return _load("store-crash")
