"""The quick look for installed plugins never says no where there is one, and spares a broker without any the long one."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

_ANNOUNCED = "[console_scripts]\nother = other:main\n\n[flintmq]\nfound = json:JSONDecoder\n"
_METADATA = "Metadata-Version: 2.1\nName: found\nVersion: 1.0\n"


def looked_at(path: Path) -> str:
    """What the quick look says of a path alone, and whether the long one finds the plugin there.

    In a process of its own: in the tests' one somebody may have asked ``importlib_metadata``, which adds a finder.
    """
    program = """
import sys
from flintmq.core.kernel.finder import find_entry_points, may_have_entry_points
everywhere, sys.path[:] = list(sys.path), [sys.argv[1], *(p for p in sys.path if "-packages" not in p)]
may = may_have_entry_points()
sys.path[1:] = everywhere
print(may, "found" in [plugin.origin.name for plugin in find_entry_points(frozenset())])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("folder", ["found-1.0.dist-info", "found.egg-info", "found-1.0-py3.11.egg/EGG-INFO"])
def test_the_quick_check_for_plugins_detects_a_plugin_in_every_package_metadata_format(
    tmp_path: Path, folder: str
) -> None:
    """However it was installed."""
    info = tmp_path / folder
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text(_ANNOUNCED, encoding="utf-8")
    (info / ("METADATA" if "dist" in folder else "PKG-INFO")).write_text(_METADATA, encoding="utf-8")
    assert looked_at(info.parent) == "True True"


def test_the_quick_check_for_plugins_detects_a_plugin_in_a_zip_file(tmp_path: Path) -> None:
    """Python imports from zip files, whose list of names nobody should have to read at every start."""
    archive = tmp_path / "plugins.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("found-1.0.dist-info/METADATA", _METADATA)
        file.writestr("found-1.0.dist-info/entry_points.txt", _ANNOUNCED)
    assert looked_at(archive) == "True True"


def test_the_quick_check_for_plugins_is_negative_if_no_package_contains_a_flintmq_plugin(tmp_path: Path) -> None:
    """Most packages announce nothing, or commands; a file may lie where others have a folder."""
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[console_scripts]\nflintmq = other:main\n", encoding="utf-8")
    (tmp_path / "silent-1.0.dist-info").mkdir()
    (tmp_path / "old.egg-info").write_text(_METADATA, encoding="utf-8")
    assert looked_at(tmp_path) == "False False"
