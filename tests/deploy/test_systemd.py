"""The units that are shipped: systemd understands them, the sandbox is as tight as is said, and what they start serves.

tools/try_systemd.sh has them run under a real systemd, which tests cannot be given everywhere.
"""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import flintmq
from flintmq.programs.cli.exits import ExitCode

ROOT = Path(flintmq.__file__).parent
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
PROGRAM = "/opt/flintmq/bin/flintmq"
INSTANCE = "broker-a"

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze (Debian's package systemd) is not installed"
)
every_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)


def put(unit: Path, folder: Path, text: str | None = None) -> Path:
    """A unit as it would be installed, with a program that is there."""
    (folder / "flintmq").symlink_to("/bin/true")
    made = folder / unit.name.replace("@", f"@{INSTANCE}")
    made.write_text((text or unit.read_text()).replace(PROGRAM, f'"{folder}/flintmq"'))
    return made


def analyzed(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def complaints(unit: Path) -> list[str]:
    """What ``systemd-analyze verify`` says of a unit, not of others that this machine happens to have."""
    return [line for line in analyzed("verify", "--man=no", unit).stderr.splitlines() if unit.name in line]


def test_the_deploy_folder_has_three_systemd_units() -> None:
    """A glob that finds nothing would test nothing."""
    assert [unit.name for unit in UNITS] == ["flintmq-broker@.service", "flintmq-namesrv.service", "flintmq.service"]


@needs_systemd
@every_unit
def test_systemd_finds_no_error_in_a_unit(unit: Path, tmp_path: Path) -> None:
    """A misspelt key is ignored by systemd, with a line in a log that nobody reads."""
    assert complaints(put(unit, tmp_path)) == []


@needs_systemd
def test_systemd_reports_a_misspelled_key_in_a_unit(tmp_path: Path) -> None:
    """Or the test above could not fail."""
    bent = UNITS[0].read_text().replace("ProtectHome=", "ProtectHomes=")
    assert "'ProtectHomes'" in "".join(complaints(put(UNITS[0], tmp_path, bent)))


@needs_systemd
@every_unit
def test_systemd_analyze_reports_a_low_security_exposure_for_every_unit(unit: Path, tmp_path: Path) -> None:
    """At most 1.5 of 10 by systemd's own measure: the network, which it needs, is most of that."""
    done = analyzed("security", "--offline=true", "--no-pager", "--threshold=15", put(unit, tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


@every_unit
def test_the_program_that_a_systemd_unit_starts_reports_its_start_and_its_stop_to_systemd(
    unit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very command line of the unit, in folders of this test's: READY, then 0 after SIGTERM."""
    line = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)[0]
    for folder in ("etc/flintmq", "var/lib/flintmq", "var/lib/flintmq-namesrv"):
        (tmp_path / folder).mkdir(parents=True)
    words = [
        re.sub(r"^/(?=etc|var)", f"{tmp_path}/", word.replace("%i", INSTANCE))
        for word in shlex.split(line)
        if word != PROGRAM
    ]
    config = Path(words[words.index("-c") + 1])
    config.write_text("nameserver: {port: 0}\nlisten: {port: 0, vip: false}\nstore: {commit_log_file_bytes: 4MiB}\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(30)
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        command = [sys.executable, "-m", "flintmq", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert manager.recv(4096).startswith(b"READY=1\n")
                process.terminate()
                assert manager.recv(4096).startswith(b"STOPPING=1\n")
                _, err = process.communicate(timeout=30)
                assert process.returncode == 0, err
            finally:
                process.kill()
    config.write_text("nonsense: 1\n")
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode in prevented(unit), "a wrong configuration stays wrong, however often it is started"


def prevented(unit: Path) -> set[int]:
    """Exit codes after which systemd leaves it alone."""
    (codes,) = re.findall(r"^RestartPreventExitStatus=(.*)$", unit.read_text(), re.MULTILINE)
    return {int(code) for code in codes.split()}


@every_unit
def test_the_systemd_unit_restarts_a_broker_that_exits_because_its_store_is_fenced(unit: Path) -> None:
    """Recovery reads what is really on the disk, so another start may help; docs/operations.md says so."""
    assert not prevented(unit) & {ExitCode.FENCED, ExitCode.NETWORK, ExitCode.FAILED}
