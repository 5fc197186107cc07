"""``--log-file``: the log stays whole while logrotate moves it away, and a full disk stops no broker."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import flintmq
from flintmq.programs.cli import log_output
from flintmq.programs.cli.log_file import LogFile

from .conftest import RunCommand, wait_for_route
from .test_serve import finish, serving

ROTATION = Path(flintmq.__file__).parent / "deploy" / "logrotate" / "flintmq"


@pytest.fixture
def handler(tmp_path: Path) -> Iterator[LogFile]:
    """A log file that is open."""
    made = LogFile(tmp_path / "flintmq.log")
    yield made
    made.close()


def line(text: str) -> logging.LogRecord:
    return logging.LogRecord("flintmq.test", logging.INFO, "", 0, text, None, None)


def test_the_log_file_is_created_again_if_another_process_renamed_it(tmp_path: Path, handler: LogFile) -> None:
    """Nobody signals the broker; each line is in one of the two."""
    handler.emit(line("one"))
    (tmp_path / "flintmq.log").rename(tmp_path / "flintmq.log.1")
    handler.emit(line("two"))
    assert (tmp_path / "flintmq.log.1").read_text() == "one\n"
    assert (tmp_path / "flintmq.log").read_text() == "two\n"


def test_python_log_records_of_other_libraries_are_written_to_the_log_file_of_flintmq(tmp_path: Path) -> None:
    """Exporters, HTTP clients and plugins log by names of their own; collectors read one form, from one place."""
    program = (
        "import logging, pathlib, sys\n"
        "from flintmq.programs.cli.log_output import configure\n"
        "configure('info', is_json=True, file=pathlib.Path(sys.argv[1]))\n"
        "logging.getLogger('somebody.else').warning('no %s', 'luck')\n"
        "logging.getLogger('somebody.else').info('chatter')"
    )
    file = tmp_path / "flintmq.log"
    done = subprocess.run([sys.executable, "-c", program, file], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    (found,) = map(json.loads, file.read_text().splitlines())
    assert (found["logger"], found["level"], found["message"]) == ("somebody.else", "WARNING", "no luck")


def test_log_lines_are_dropped_without_an_error_while_the_log_folder_is_missing(
    tmp_path: Path, handler: LogFile, capfd: pytest.CaptureFixture[str]
) -> None:
    """Who logs must not get an error for it; and when the folder is there again, so is the log."""
    file = tmp_path / "flintmq.log"
    handler.emit(line("one"))
    file.unlink()
    file.mkdir()  # may not be opened, whoever tries
    handler.emit(line("lost"))
    handler.emit(line("lost, too"))
    assert capfd.readouterr().err.count("IsADirectoryError") == 2
    file.rmdir()
    handler.emit(line("again"))
    assert file.read_text() == "again\n"


def test_all_brokers_that_one_command_starts_write_to_one_log_file(
    tmp_path: Path, cli: RunCommand, small: list[str]
) -> None:
    """The log of all of them is one; stderr stays empty, so nothing is kept twice."""
    log = tmp_path / "flintmq.log"
    with serving("run", "--store", tmp_path / "s", "--brokers", 2, "--log-file", log, *small) as (process, _):
        log.rename(tmp_path / "before.log")
        process.terminate()
        code, _out, err = finish(process)
    assert (code, err) == (0, "")
    assert (tmp_path / "before.log").read_text().count("listens on") == 3
    after = log.read_text()
    assert "broker-a flintmq" in after
    assert "broker-b flintmq" in after


def test_a_command_with_an_unwritable_log_file_exits_with_an_error_that_names_the_option(
    tmp_path: Path, cli: RunCommand
) -> None:
    """At the start, by the name of the option."""
    before = log_output.log_arguments()
    outcome = cli("run", "--log-file", tmp_path / "no" / "flintmq.log", "--store", tmp_path / "s")
    assert outcome.code == 2
    assert (
        outcome.err
        == f"flintmq: error: --log-file {tmp_path}/no/flintmq.log cannot be written: No such file or directory\n"
    )
    assert log_output.log_arguments()[2:] == before[2:]
    assert not (tmp_path / "s").exists()


@pytest.mark.skipif(shutil.which("logrotate") is None, reason="logrotate (Debian's package) is not installed")
def test_logrotate_rotates_the_log_of_a_running_broker(tmp_path: Path, cli: RunCommand, small: list[str]) -> None:
    """The file that is shipped, on this machine's folder and user, with the real logrotate: nothing is lost."""
    log, rotation = tmp_path / "flintmq.log", tmp_path / "rotation"
    shipped = ROTATION.read_text()
    assert "/var/log/flintmq/*.log" in shipped
    assert "su flintmq flintmq" in shipped
    user = "" if os.getuid() else "su root root"
    ours = shipped.replace("/var/log/flintmq/*.log", f"{tmp_path}/*.log")
    rotation.write_text(ours.replace("su flintmq flintmq", user))
    rotation.chmod(0o644)
    tmp_path.chmod(0o755)
    with serving("run", "--store", tmp_path / "s", "--log-file", log, *small) as (process, ready):
        rotate = ["logrotate", "--force", "--state", str(tmp_path / "state"), str(rotation)]
        done = subprocess.run(rotate, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        moved = [one for one in tmp_path.glob("flintmq.log*") if one != log]
        assert len(moved) == 1
        assert "listens on" in moved[0].read_text()
        assert cli("topics", "create", "T", "-n", ready["namesrv"]).code == 0
        wait_for_route(cli, "T", ready["namesrv"])
        process.terminate()
        assert finish(process)[0] == 0
    assert "stopped" in log.read_text()
