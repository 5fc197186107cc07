"""What somebody who knows nothing of FlintMQ finds in a landing zone."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq

from flintmq.testing.journaled_files import Image


def visible(files: Mapping[str, bytes]) -> dict[str, list[int]]:
    """Physical offsets by file, of the files that readers look at."""
    found = {}
    for path, data in files.items():
        name = path.rpartition("/")[2]
        if name.startswith((".", "_")) or "/_" in f"/{path}":
            continue
        assert re.fullmatch(r"part-\d{20}-\d{20}\.parquet", name), f"{path} does not belong to the zone"
        assert "/topic=" in f"/{path}"
        found[path] = pq.read_table(io.BytesIO(data)).column("physicalOffset").to_pylist()
    return found


def in_image(image: Image, root: Path) -> dict[str, bytes]:
    """The files below a folder of a simulated disk."""
    return {str(path.relative_to(root)): data for path, data in image.files.items() if path.is_relative_to(root)}


def on_disk(root: Path) -> dict[str, bytes]:
    """The files below a folder."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def offsets(files: Mapping[str, bytes]) -> list[int]:
    """All physical offsets that readers find, in order, repeats and all."""
    return sorted(offset for found in visible(files).values() for offset in found)
