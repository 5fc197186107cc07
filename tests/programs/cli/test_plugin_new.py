"""``plugin new``: what it prints and refuses, and that a broker takes the configuration that the project's README shows."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.programs.scaffold.scaffold import KINDS

from .conftest import RunCommand


@pytest.fixture
def imported() -> Iterator[None]:
    """Forget the modules of plugins that a test imports."""
    yield
    for name in [name for name in sys.modules if name.split(".")[0].startswith("flintmq_my_")]:
        del sys.modules[name]


def test_the_command_plugin_new_prints_the_created_folder_and_the_next_commands_to_run(
    cli: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is named after the plugin where none is given."""
    monkeypatch.chdir(tmp_path)
    outcome = cli("plugin", "new", "flintmq-disk-watch", "--kind", "service")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == (
        "flintmq-disk-watch: a plugin of the kind service, in 6 files\n"
        "next: cd flintmq-disk-watch && pip install -e '.[test]' && python -m pytest\n"
    )
    assert (tmp_path / "flintmq-disk-watch" / "pyproject.toml").exists()


def test_the_json_output_lists_every_file_that_was_created_for_the_new_plugin(cli: RunCommand, tmp_path: Path) -> None:
    """Every file that is there, and the names that follow from the plugin's."""
    folder = tmp_path / "a b"
    told = cli("plugin", "new", "flintmq-disk-watch", "--kind", "service", "--dir", folder, "--json").json
    files = told.pop("files")
    assert told == {
        "name": "flintmq-disk-watch",
        "kind": "service",
        "package": "flintmq_disk_watch",
        "section": "disk_watch",
        "dir": str(folder),
    }
    assert files == sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("flintmq-disk-watch",), "--kind"),
        (("flintmq-disk-watch", "--kind", "teapot"), "'dispatcher', 'flush'"),
        (("disk watch", "--kind", "service"), "cannot be the name of a plugin"),
        (("flintmq-retry", "--kind", "service"), "my-flintmq-retry"),
        (("flintmq-disk-watch", "--kind", "service", "--dir", "full"), "is not an empty folder"),
    ],
)
def test_plugin_new_with_invalid_arguments_prints_one_line_and_exits_with_2(
    cli: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    """And nothing is written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full" / "mine").mkdir(parents=True)
    outcome = cli("plugin", "new", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert outcome.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["full", "mine"]


def test_plugin_new_reports_the_path_of_a_folder_that_cannot_be_created(cli: RunCommand, tmp_path: Path) -> None:
    """Here a file lies in its way."""
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    outcome = cli("plugin", "new", "flintmq-disk-watch", "--kind", "service", "--dir", tmp_path / "file" / "new")
    assert outcome.code == 1
    assert str(tmp_path / "file") in outcome.err
    assert "Not a directory" in outcome.err


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("kind", KINDS)
def test_the_readme_of_a_new_plugin_shows_a_valid_configuration(
    cli: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As it stands there, with the plugin on the path."""
    assert cli("plugin", "new", f"flintmq-my-{kind}", "--kind", kind, "--dir", tmp_path / "new").code == 0
    monkeypatch.syspath_prepend(str(tmp_path / "new" / "src"))
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", (tmp_path / "new" / "README.md").read_text("utf-8"), re.M | re.S)
    assert f"my_{kind}:" in shown
    file = tmp_path / "broker.yaml"
    file.write_text(f"plugins: [flintmq_my_{kind}.plugin]\n{shown}", encoding="utf-8")
    checked = cli("config", "check", file)
    assert (checked.code, checked.err) == (0, ""), checked.err
