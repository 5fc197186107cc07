"""``flintmq store``: exit codes, JSON for programs, one line for what cannot be opened, only results on stdout."""

from __future__ import annotations

import importlib.util
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flintmq
from flintmq.core.record.log_walk import Kind
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.walk import walk
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, open_store, opened, snapshot

from .conftest import SMALL, RunCommand

COMMANDS = (("verify",), ("explain",), ("repair",), ("cat",), ("diff", "OTHER"), ("salvage", "TARGET"))


@pytest.fixture(scope="session")
def _original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store-cli") / "store"
    with opened(root, clock=ManualClock(1_700_000_000_000)) as store:
        for number in range(50):
            store.put(
                [
                    message(
                        "Orders",
                        number % 2,
                        b"body %d" % number,
                        keys=f"k{number}",
                        tags="even" if number % 2 else "odd",
                    )
                ]
            )
            store.dispatch()
    return root


@pytest.fixture
def store(_original: Path, tmp_path: Path) -> Path:
    shutil.copytree(_original, tmp_path / "store")
    return tmp_path / "store"


def damage(store: Path, number: int = 3) -> None:
    """Breaks the magic of one record."""
    records = [piece for piece in walk(StoreFiles(store)) if piece.kind is Kind.RECORD]
    path = store / "commitlog" / f"{0:020d}"
    raw = bytearray(path.read_bytes())
    raw[records[number].start + 6] ^= 1
    path.write_bytes(raw)


def test_the_verify_command_exits_with_0_for_a_sound_store_and_with_1_for_a_damaged_store(
    cli: RunCommand, store: Path
) -> None:
    """0 and 1, for scripts; a table for people."""
    outcome = cli("store", "verify", store)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.strip().endswith("100 index entries: sound") or "sound" in outcome.out
    assert cli("store", "verify", store, "--json").json["findings"] == []
    damage(store)
    outcome = cli("store", "verify", store)
    assert outcome.code == 1
    assert "damage in the middle" in outcome.out
    assert "NOT sound" in outcome.out
    report = cli("store", "verify", store, "--json").json
    assert report["sound"] is False
    assert report.keys() == {
        "sound", "records", "log_end_bytes", "damaged_bytes", "queues", "units", "index_entries", "findings", "more_findings",
    }  # fmt: skip
    assert report["findings"][0].keys() == {"level", "where", "what", "advice"}


def test_store_explain_describes_a_log_position_or_a_message_or_a_key_or_the_next_broker_start(
    cli: RunCommand, store: Path
) -> None:
    """A place, a message, a key, a start."""
    assert cli("store", "explain", store, "--position", 5, "--json").json["is"] == "record"
    assert cli("store", "explain", store, "--queue", "Orders/1/3", "--json").json["fits"] is True
    found = cli("store", "explain", store, "--key", "Orders", "k7", "--json").json
    assert any(entry.get("message") == "has the key" for file in found["files"] for entry in file["chain"])
    start = cli("store", "explain", store, "--json").json
    assert (start["last_stop"], start["cut"], start["damage"], start["refuses"]) == ("clean", None, [], [])
    text = cli("store", "explain", store, "--queue", "Orders/1/3").out
    assert "    topic: Orders" in text
    damage(store, 3)
    assert cli("store", "explain", store, "--json").json["damage"]
    strict = cli("store", "explain", store, "--set", "store.compat=strict", "--json").json
    assert strict["cut"]["is"] == "damage"


def test_store_commands_refuse_a_folder_that_contains_several_stores_and_list_these_stores(
    cli: RunCommand, tmp_path: Path
) -> None:
    """The folder of run --brokers holds a store for each: one of them is meant."""
    for name in ("broker-a", "broker-b"):
        (tmp_path / name / "commitlog").mkdir(parents=True)
    refused = cli("store", "verify", tmp_path)
    assert refused.code == 3
    assert f"name one: {tmp_path / 'broker-a'}, {tmp_path / 'broker-b'}" in refused.err


@pytest.mark.parametrize("place", ["Orders", "Orders/x/1", "Orders/0/-1", "/0/1"])
def test_store_explain_refuses_an_invalid_queue_argument_as_wrong_usage(
    cli: RunCommand, store: Path, place: str
) -> None:
    """With an example of a right one."""
    outcome = cli("store", "explain", store, "--queue", place)
    assert outcome.code == 2
    assert "Orders/0/17" in outcome.err


def test_store_repair_and_store_salvage_make_a_sound_store(cli: RunCommand, store: Path, tmp_path: Path) -> None:
    """What they did is told; the damaged store is not changed by a salvage."""
    damage(store)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    saved = cli("store", "salvage", store, tmp_path / "saved", "--json").json
    assert (saved["records"], saved["lost_stretches"]) == (49, 1)
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before
    assert cli("store", "verify", tmp_path / "saved").code == 0
    assert cli("store", "salvage", store, tmp_path / "saved").code == 3, "a target that is there is not overwritten"
    repaired = cli("store", "repair", store, "--json").json
    assert Path(repaired["replaced_are_in"]).is_dir()
    assert cli("store", "verify", store).code == 0
    assert cli("store", "diff", store, tmp_path / "saved").code == 1


def test_store_diff_exits_with_0_for_equal_and_1_for_different_stores(
    cli: RunCommand, store: Path, tmp_path: Path
) -> None:
    """0 and 1, as diff has them."""
    shutil.copytree(store, tmp_path / "copy")
    assert cli("store", "diff", store, tmp_path / "copy", "--json").json["same"] is True
    damage(tmp_path / "copy")
    outcome = cli("store", "diff", store, tmp_path / "copy", "--json")
    assert outcome.code == 1
    assert outcome.json["records_only_left"] == 1


def test_store_cat_prints_one_message_per_line(cli: RunCommand, store: Path) -> None:
    """With filters, whole bodies, and no more than asked for."""
    lines = cli("store", "cat", store).json_lines
    assert [line["body"] for line in lines] == [f"body {number}" for number in range(50)]
    assert len(cli("store", "cat", store, "--topic", "Orders", "--queue", 1, "--limit", 7).json_lines) == 7
    assert len(cli("store", "cat", store, "--tag", "odd").json_lines) == 25
    assert cli("store", "cat", store, "--topic", "None").out == ""
    assert cli("store", "cat", store, "--from", "soon").code == 2
    assert cli("store", "cat", store, "--until", "2000-01-01T00:00").out == ""


def test_store_cat_writes_messages_to_a_parquet_file(cli: RunCommand, store: Path, tmp_path: Path) -> None:
    """And says how many; a file that cannot be written is one line."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    outcome = cli("store", "cat", store, "--parquet", tmp_path / "m.parquet")
    assert outcome.out.startswith("50 messages in ")
    outcome = cli("store", "cat", store, "--parquet", tmp_path / "no" / "m.parquet")
    assert outcome.code != 0
    assert outcome.err.startswith("flintmq: error: ")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("parquet", [False, True])
def test_store_cat_reports_unreadable_bytes_on_stderr(
    cli: RunCommand, store: Path, tmp_path: Path, parquet: bool
) -> None:
    """On stderr: who compares two outputs must not take damage for messages that were never there."""
    if parquet:
        pytest.importorskip("pyarrow")
    target = ("--parquet", tmp_path / "m.parquet") if parquet else ()
    assert cli("store", "cat", store, *target).err == ""
    damage(store)
    outcome = cli("store", "cat", store, *target)
    assert outcome.code == 0
    assert "flintmq: warning: bytes " in outcome.err
    assert " of the log are left out, they cannot be read: " in outcome.err


def test_store_cat_without_pyarrow_names_the_extra_to_install(
    cli: RunCommand, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain install has it not."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    outcome = cli("store", "cat", store, "--parquet", tmp_path / "m.parquet")
    assert outcome.code == 1
    assert "pip install '.[parquet]'" in outcome.err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("what", ["nothing there", "a file", "an empty folder", "other files"])
def test_a_folder_that_is_no_store_is_refused_in_one_line(
    cli: RunCommand, tmp_path: Path, store: Path, command: tuple[str, ...], what: str
) -> None:
    """No traceback, whatever is named; and nothing is made there."""
    place = tmp_path / "place"
    if what == "a file":
        place.write_text("x")
    elif what != "nothing there":
        place.mkdir()
        if what == "other files":
            (place / "notes.txt").write_text("x")
    before = sorted(tmp_path.rglob("*"))
    rest = [store if word == "OTHER" else tmp_path / "target" for word in command[1:]]
    outcome = cli("store", command[0], place, *rest)
    assert outcome.code == 3
    assert outcome.out == ""
    assert outcome.err.startswith(f"flintmq: error: {place}")
    assert outcome.err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_store_commands_report_malformed_store_files_instead_of_crashing(cli: RunCommand, store: Path) -> None:
    """Wrong sizes and names everywhere; only a repair whose log has an impossible size gives up."""
    (store / "commitlog" / "x").write_text("x")
    (store / "consumequeue" / "Orders" / "0" / f"{0:020d}").write_bytes(b"abc")
    (store / "checkpoint").write_bytes(b"abc")
    for path in (store / "index").iterdir():
        path.write_bytes(b"abc")
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_bytes(b"\xff\xfe\x00")
    report = cli("store", "verify", store, "--json")
    assert report.code == 1
    assert len(report.json["findings"]) >= 5
    assert len(cli("store", "explain", store, "--json").json["refuses"]) >= 3
    assert cli("store", "explain", store, "--key", "Orders", "k1").code == 3
    assert cli("store", "cat", store).code == 0
    (store / "commitlog" / f"{0:020d}").write_bytes(bytes(100))
    assert cli("store", "repair", store).code == 3


def test_an_unreadable_file_is_reported_in_one_line(
    cli: RunCommand, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's store."""
    place = store / "commitlog" / f"{0:020d}"
    real = Path.open

    def refuse(self: Path, *arguments: str) -> object:
        if self == place:
            raise PermissionError(13, "Permission denied")
        return real(self, *arguments)

    monkeypatch.setattr(Path, "open", refuse)
    outcome = cli("store", "verify", store)
    assert outcome.code == 3
    assert outcome.err == f"flintmq: error: {place}: cannot be read: Permission denied\n"


def test_store_verify_reports_an_error_if_the_index_settings_do_not_match_the_index_files(
    cli: RunCommand, store: Path
) -> None:
    """The settings are believed, and held against the file's size."""
    right = ["--set", "index.max_hash_slot_num=16", "--set", "index.max_index_num=64"]
    assert cli("store", "verify", store, *right).code == 0
    wrong = ["--set", "index.max_hash_slot_num=17", "--set", "index.max_index_num=64"]
    outcome = cli("store", "verify", store, *wrong)
    assert outcome.code == 1
    assert "an index file with 17 slots" in outcome.out


def test_the_command_store_repair_exits_with_code_3_while_a_broker_uses_the_store(store: Path) -> None:
    """What it writes meanwhile may look like damage; a repair refuses. Its lock survives the look."""
    running = open_store(store)
    try:
        done = run(store, "verify")
        assert "a broker runs on" in done.stderr
        assert run(store, "repair").returncode == 3
        assert "a broker runs on" in run(store, "verify").stderr
    finally:
        running.close()
    assert run(store, "verify").stderr == ""


def run(store: Path, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    import os

    words = [sys.executable, "-m", "flintmq", "store", command, str(store)]
    return subprocess.run(
        words, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}, check=False
    )


def test_store_commands_never_write_their_progress_to_stdout(store: Path) -> None:
    """Not even where colours are forced, as some CI systems do."""
    done = run(store, "verify", FORCE_COLOR="1", TERM="xterm")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert done.stdout.count("\n") == 1


def test_store_cat_ends_quietly_if_its_output_pipe_closes(store: Path) -> None:
    """``flintmq store cat STORE | head -1``."""
    words = f"{shlex.join([sys.executable, '-m', 'flintmq', 'store', 'cat', str(store)])} | head -1"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=60, check=False)
    assert json.loads(done.stdout)["queue_offset"] == 0
    assert "Traceback" not in done.stderr


def test_the_command_store_verify_reads_each_of_several_configured_log_folders(cli: RunCommand, tmp_path: Path) -> None:
    """As the broker is told of them."""
    folders = [tmp_path / "a", tmp_path / "b"]
    root = tmp_path / "store"
    with opened(root, commit_log_paths=tuple(map(str, folders))) as made:
        for number in range(60):
            made.put([message("Orders", 0, b"x" * 200, keys=f"k{number}")])
        made.dispatch()
    assert all(any(folder.iterdir()) for folder in folders)
    setting = f"storePathCommitLog={folders[0]},{folders[1]}"
    report = cli("store", "verify", root, "--set", setting, "--json").json
    assert (report["records"], report["findings"]) == (60, [])


SCALE_COMMANDS = (("rebuild",), ("export", "OUT"), ("compact", "OUT"), ("audit",))


@pytest.mark.parametrize("command", SCALE_COMMANDS, ids=lambda command: command[0])
def test_store_commands_refuse_an_unknown_value_of_the_option_engine(
    cli: RunCommand, store: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Each says in JSON what it did, and names the engines when asked for another one."""
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    name, *rest = command
    arguments = [str(store), *(str(tmp_path / word) for word in rest)]
    sizes = ["--set", "index.max_hash_slot_num=16", "--set", "index.max_index_num=64"] if name == "rebuild" else []
    outcome = cli("store", name, *arguments, "--engine", "inline", "--json", *sizes)
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["records" if name in ("rebuild", "audit") else "rows"] == 50
    outcome = cli("store", name, str(store), *(str(tmp_path / f"{word}2") for word in rest), "--engine", "flink")
    assert outcome.code == 1
    assert "inline, process, spark" in outcome.err


def test_store_audit_exits_with_1_if_it_finds_damage(cli: RunCommand, store: Path) -> None:
    """Exit code 1, and the places."""
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    path = store / "commitlog" / f"{0:020d}"
    raw = bytearray(path.read_bytes())
    raw[88] ^= 1
    path.write_bytes(raw)
    outcome = cli("store", "audit", str(store), "--engine", "inline")
    assert outcome.code == 1
    assert "wrong crcs:" in outcome.out


@pytest.mark.parametrize("command", SCALE_COMMANDS, ids=lambda command: command[0])
def test_store_commands_print_a_one_line_error_if_a_required_python_package_is_missing(
    cli: RunCommand, store: Path, tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has not installed numpy and pyarrow is told what to install, and sees no traceback."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "pyarrow" else found(name, *more)
    )
    name, *rest = command
    outcome = cli("store", name, str(store), *(str(tmp_path / word) for word in rest))
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "pip install '.[spark]'" in outcome.err


def test_store_verify_and_store_repair_use_the_delay_levels_saved_in_the_store(cli: RunCommand, tmp_path: Path) -> None:
    """Without a word about them verify said NOT sound, and repair changed when messages are due."""
    root = tmp_path / "own"
    levels = "delay.levels=3s 7s 1h"
    with flintmq.Broker(flintmq.load_config(None, [*SMALL, f"store.path={root}", levels], {})) as broker:
        broker.put([flintmq.Message("Orders", b"later", delay_level=level) for level in (1, 2, 3)])
    before = snapshot(root, "consumequeue")
    outcome = cli("store", "verify", root, "--json")
    assert (outcome.code, outcome.json["findings"]) == (0, [])
    assert cli("store", "repair", root).code == 0
    assert snapshot(root, "consumequeue") == before
    shutil.rmtree(root / "flint")  # as a RocketMQ leaves its store
    outcome = cli("store", "verify", root, "--json")
    assert (outcome.code, outcome.json["sound"]) == (0, True)
    assert [found["level"] for found in outcome.json["findings"]] == ["note"]
    assert cli("store", "verify", root, "--set", levels, "--json").json["findings"] == []
    assert cli("store", "verify", root, "--set", "delay.levels=1s 5s").code == 1
    assert cli("store", "repair", root).code == 0
    assert snapshot(root, "consumequeue") == before
