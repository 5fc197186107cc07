"""A small, sound store: three log files, blanks, tags, keys (two of one hash), offsets; copied for each test."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from flintmq.core.record.java_hash import index_key_hash
from flintmq.core.record.log_walk import Kind
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.report import Level, Report
from flintmq.programs.doctor.verify import verify
from flintmq.programs.doctor.walk import Piece, walk
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, opened

START_MS = 1_700_000_000_000
FILE_BYTES = 4096
COUNT = 66
COLLIDING = ("AaAa", "BBBB")
"""Two keys of one Java hash."""
assert index_key_hash("Orders", COLLIDING[0]) == index_key_hash("Orders", COLLIDING[1])


@attrs.frozen
class Small:
    """A copy of the small store."""

    root: Path

    @property
    def files(self) -> StoreFiles:
        return StoreFiles(self.root)

    @property
    def pieces(self) -> list[Piece]:
        return list(walk(self.files))

    @property
    def records(self) -> list[Piece]:
        return [piece for piece in self.pieces if piece.kind is Kind.RECORD]

    @property
    def blanks(self) -> list[Piece]:
        return [piece for piece in self.pieces if piece.kind is Kind.BLANK]

    def verify(self) -> Report:
        return verify(self.files, DELAY_LEVEL_MS)

    @property
    def findings(self) -> list[tuple[Level, str]]:
        return [(found.level, f"{found.where}: {found.what}") for found in self.verify().findings]

    def edit(self, name: str, at: int, data: bytes) -> None:
        """Overwrites bytes of one file."""
        path = self.root / name
        raw = bytearray(path.read_bytes())
        raw[at : at + len(data)] = data
        path.write_bytes(raw)

    def flip(self, name: str, at: int, bit: int = 0) -> None:
        """Flips one bit of one file."""
        raw = bytearray((self.root / name).read_bytes())
        raw[at] ^= 1 << bit
        (self.root / name).write_bytes(raw)

    def log_name(self, position: int) -> tuple[str, int]:
        """The log file that holds a position, and the place in it."""
        return f"commitlog/{position - position % FILE_BYTES:020d}", position % FILE_BYTES

    def flip_log(self, position: int, bit: int = 0) -> None:
        self.flip(*self.log_name(position), bit)

    def edit_log(self, position: int, data: bytes) -> None:
        self.edit(*self.log_name(position), data)

    @property
    def index_name(self) -> str:
        return f"index/{min(path.name for path in (self.root / 'index').iterdir())}"


def _make(root: Path) -> None:
    clock = ManualClock(START_MS)
    with opened(root, clock=clock, commit_log_file_bytes=FILE_BYTES, max_hash_slot_num=16, max_index_num=64) as store:
        for number in range(COUNT):
            topic = "Orders" if number % 3 else "Bills"
            store.put(
                [
                    message(
                        topic,
                        number % 2,
                        body=b"body %d " % number * (number % 5),
                        tags=f"t{number % 4}" if number % 4 else "",
                        keys=COLLIDING[number % 2] if topic == "Orders" and number > 50 else f"key{number}",
                        uniq_key=f"U{number}",
                    )
                ]
            )
            store.dispatch()
            clock.advance_ms(700)
    (root / "config").mkdir()
    topics = {"topicConfigTable": {name: {"topicName": name} for name in ("Orders", "Bills")}}
    (root / "config" / "topics.json").write_text(json.dumps(topics))
    offsets = {"offsetTable": {"Orders@billing": {"0": 5, "1": 7}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(offsets))


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("doctor") / "store"
    _make(root)
    return root


@pytest.fixture
def copy_small(original: Path) -> Callable[[Path], Small]:
    """Makes a copy in a folder that is not there yet."""

    def copy(root: Path) -> Small:
        shutil.copytree(original, root)
        return Small(root)

    return copy


@pytest.fixture
def small(copy_small: Callable[[Path], Small], tmp_path: Path) -> Small:
    return copy_small(tmp_path / "store")
