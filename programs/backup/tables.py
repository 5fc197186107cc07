"""Reads the tables of the store to back up: topics, groups, offsets, and FlintMQ's own files in ``flint``.

The order of reading decides what a restored store can lose. Offsets are read before the log's position, so they never point
past the backup's messages: no group skips a message, but a group may consume some again. Topics and groups are read after the
log's position, so each message has its topic. A journal is read before its table, because the broker writes the table before it
empties the journal.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from flintmq.core.errors import JsonSyntaxError, StoreFormatError, reading
from flintmq.core.io import fastjson
from flintmq.core.io.config_journal import SECOND_FILE
from flintmq.programs.doctor.files import listed

BEFORE: Final = ("config/consumerOffset.json", "config/delayOffset.json", "flint/timer/position.json")
"""Paths of the store's files with offsets. A backup reads these files before the end position of the log."""
_JOURNALS: Final = tuple(
    f"flint/{name}{which}" for name in ("new-topics", "new-groups", "gone-offsets") for which in ("", SECOND_FILE)
)
_OURS: Final = ("flint/delay_levels.json", "flint/epochs", "flint/acl/plain_acl.yml")
_KEY_VALUES: Final = "flint/kvConfig.json"
"""Path, relative to the store, of the key-value configuration of a name server that runs in the broker's process."""
_CONFIG: Final = "config"
_TRIES: Final = 20
_PAUSE_S: Final = 0.05

Tables = dict[str, bytes]
"""Contents of a store's tables, keyed by the path relative to the store."""


def read_positions(root: Path, sleep: Callable[[float], object] = time.sleep) -> Tables:
    """Return the store's tables of offsets. Call this before the end position of the log is determined. Raises StoreError."""
    return _read(root, BEFORE, sleep)


def read_names(root: Path, sleep: Callable[[float], object] = time.sleep) -> Tables:
    """Return the store's other tables, such as topics and groups. Call this after the end position of the log is determined.
    Raises StoreError."""
    # Names of ``.bak`` files are included, because only the ``.bak`` file of a table exists while RocketMQ replaces the table.
    names = {name.removesuffix(".bak") for name in _config_files(root)} - {name.rpartition("/")[2] for name in BEFORE}
    return _read(root, (*_JOURNALS, *(f"{_CONFIG}/{name}" for name in sorted(names)), _KEY_VALUES, *_OURS), sleep)


def _config_files(root: Path) -> Iterator[str]:
    for path in listed(root / _CONFIG):
        if path.name.endswith((".json", ".json.bak")) and not path.is_dir():
            yield path.name


def _read(root: Path, names: tuple[str, ...], sleep: Callable[[float], object]) -> Tables:
    found = {}
    for name in names:
        path = root / name
        is_json = name.startswith(_CONFIG) or name == _KEY_VALUES
        content = _whole_json(path, sleep) if is_json else _content(path)
        if content is not None:
            found[name] = content
    return found


def _whole_json(path: Path, sleep: Callable[[float], object]) -> bytes | None:
    """Return the content of a JSON file as soon as it is valid; None if the file does not exist. RocketMQ writes its files in
    place, so a file can be incomplete for a moment."""
    backup = path.with_name(path.name + ".bak")
    problem = ""
    for _ in range(_TRIES):
        content = _content(path)
        if content is None and not backup.exists():
            return None
        if content is not None and content.strip():
            try:
                fastjson.loads(content)
            except (JsonSyntaxError, UnicodeDecodeError) as error:
                problem = str(error)
            else:
                return content
        sleep(_PAUSE_S)
    content = _content(backup)  # The ``.bak`` file replaces a damaged table file, as at the start of a broker.
    if content is not None and content.strip():
        try:
            fastjson.loads(content)
        except (JsonSyntaxError, UnicodeDecodeError) as error:
            problem = f"{problem or 'it is missing or empty'}; {backup.name}: {error}"
        else:
            return content
    elif not problem:
        return None
    raise StoreFormatError(
        f"{path}: cannot be read: {problem}; a broker would refuse the file at its start. Correct the file first"
    )


def _content(path: Path) -> bytes | None:
    with reading(path), contextlib.suppress(FileNotFoundError):
        return path.read_bytes()
    return None
