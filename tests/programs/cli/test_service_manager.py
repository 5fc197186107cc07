"""A service manager learns when a broker serves, and when it stops: units that wait for it start in time."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.programs.cli.service_manager import ServiceManager
from flintmq.programs.cli.serving import ready_word

from .test_serve import finish, serving


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket that systemd would listen at."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(20)
        listening.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listening


def told(manager: socket.socket) -> list[str]:
    """Lines of the next datagram."""
    return manager.recv(4096).decode().split("\n")


@pytest.mark.parametrize("more", [[], ["--brokers", 2]])
def test_the_service_manager_is_notified_once_of_the_start_and_once_of_the_stop(
    tmp_path: Path, small: list[str], manager: socket.socket, more: list[object]
) -> None:
    """Each once, by the process that it started; those of several brokers are not asked to speak for the service."""
    with serving("run", "--store", tmp_path / "s", *more, *small) as (process, ready):
        ready["store"] = ready_word(Path(ready["store"]))
        words = " ".join(f"{name}={value}" for name, value in ready.items() if name != "pid")
        assert told(manager) == ["READY=1", f"STATUS={words}"]
        process.terminate()
        assert finish(process)[0] == 0
    assert told(manager) == ["STOPPING=1", "STATUS=stopping"]
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(4096)


def test_the_service_manager_is_not_notified_of_a_failed_start(
    tmp_path: Path, small: list[str], manager: socket.socket
) -> None:
    """READY would have systemd start what needs this broker."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = f"listen.port={taken.getsockname()[1]}"
        arguments = [port if word == "listen.port=0" else word for word in small]
        start = serving("run", "--store", tmp_path / "s", *arguments)
        with pytest.raises(AssertionError, match="cannot listen"):
            start.__enter__()
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(4096)


def test_line_breaks_in_status_texts_for_the_service_manager_are_replaced_by_spaces() -> None:
    """systemd of containers listens at names that begin with @. A line break in a reason is no further word."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("")  # a free abstract name
        name = listening.getsockname().decode()
        ServiceManager(f"@{name[1:]}").tell("STOPPING=1", "STATUS=disk\nREADY=1")
        assert listening.recv(4096) == b"STOPPING=1\nSTATUS=disk READY=1"


def test_an_unreachable_service_manager_causes_only_a_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that serves does not end because nobody wants to know it."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    ServiceManager.of_environment().tell("READY=1")
    assert "the service manager was not told READY=1: No such file" in capfd.readouterr().err
    ServiceManager.of_environment().tell("READY=1")
    assert capfd.readouterr().err == "", "asked once, the variable is gone"
