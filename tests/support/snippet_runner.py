"""Runs what a page shows to be typed, block by block in one folder, and compares what a console block says is printed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import flintmq
from flintmq.tests.support.ports import free_ports

_PORTS: Final = (9876, 10911)
"""The ports that pages name: the name server's and the broker's."""
_SERVES: Final = re.compile(r"(?:[A-Z]+=\S+ )*flintmq (run|broker|namesrv|console) (?!.*--help)")
_NAMED: Final = re.compile(r"# (?P<file>[\w./-]+\.(?:py|yaml|yml|conf))\b")
_VARYING: Final = re.compile(r"…|\.\.\.|\d+")
_COMMAND_TIMEOUT_S: Final = 60.0


class PageRunner:
    """One page's folder and the servers that its commands started; each block sees what those before it left.

    The ports 9876 and 10911 are replaced by free ones wherever they are written, and where they are a server's defaults. A
    block whose first line is a comment with a file's name is written to that file. A Python block is run as a script, unless
    a command of the page runs its file. A YAML block is loaded as a broker's configuration. A console block's commands (the
    lines that begin with ``$``) must end with 0 and print the lines that follow them, in which numbers and ``…`` stand for
    anything. A command that serves runs until the page ends. What a page puts into the background, with its id in a file
    ``*.pid``, it ends itself, and the runner where the page fails before.

    Args:
        folder: an empty folder.
        commands: all console blocks of the page.
    """

    def __init__(self, folder: Path, commands: str = "") -> None:
        self._folder = folder
        self._run_by_commands = set(re.findall(r"\bpython (\S+\.py)\b", commands))
        self._servers: list[subprocess.Popen[str]] = []
        self._ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        activate = folder / ".venv" / "bin" / "activate"
        activate.parent.mkdir(parents=True)
        activate.touch()  # the test's environment is the active one
        self._environ = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "NAMESRV_ADDR": f"127.0.0.1:{self._ports[9876]}",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for server in reversed(self._servers):
            server.send_signal(signal.SIGTERM)
        codes = [server.wait(_COMMAND_TIMEOUT_S) for server in reversed(self._servers)]
        for server in self._servers:
            if server.stdout is not None:
                server.stdout.close()
        for left in self._folder.glob("*.pid") if error is not None else ():
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(left.read_text()), signal.SIGKILL)
        if error is None:
            assert not any(codes), f"servers ended with {codes}"

    def run(self, language: str, text: str) -> None:
        """Run one block. Raises AssertionError where it does not do what the page says."""
        for shown, free in self._ports.items():
            text = re.sub(rf"\b{shown}\b", str(free), text)
        {"console": self._console, "sh": self._sh, "python": self._python, "yaml": self._yaml}[language](text)

    def _console(self, text: str) -> None:
        for command, shown in commands(text):
            printed = self._serve(command) if _SERVES.match(command) else self._command(["bash", "-c", command])
            missing = [line for line in shown if not is_printed(line, printed)]
            assert not missing, f"$ {command}\nprinted\n{printed}\nand not\n" + "\n".join(missing)

    def _sh(self, text: str) -> None:
        self._command(["bash", "-euo", "pipefail", "-c", text])

    def _python(self, text: str) -> None:
        path = self._write(text, "snippet.py")
        if str(path.relative_to(self._folder)) not in self._run_by_commands:
            self._command([sys.executable, str(path)])

    def _yaml(self, text: str) -> None:
        flintmq.load_config(self._write(text, "snippet.yaml"), [], {})

    def _write(self, text: str, otherwise: str) -> Path:
        named = _NAMED.match(text)
        path = self._folder / (named["file"] if named else otherwise)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", "utf-8")
        return path

    def _command(self, arguments: list[str]) -> str:
        done = subprocess.run(
            arguments,
            cwd=self._folder,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_COMMAND_TIMEOUT_S,
        )
        assert done.returncode == 0, f"{arguments[-1]}\nended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def _serve(self, command: str) -> str:
        server = subprocess.Popen(
            ["bash", "-c", f"exec env {command}"],
            cwd=self._folder,
            env={
                **self._environ,
                "FLINTMQ_NAMESERVER__PORT": str(self._ports[9876]),
                "FLINTMQ_LISTEN__PORT": str(self._ports[10911]),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        self._servers.append(server)
        assert server.stdout is not None
        lines = []
        for line in server.stdout:
            lines.append(line)
            if line.startswith("READY "):
                return "".join(lines)
        server.stdout.close()
        self._servers.remove(server)
        code = server.wait(_COMMAND_TIMEOUT_S)
        raise AssertionError(f"$ {command}\nended before it was ready, with {code}:\n{''.join(lines)}")


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Take a console block apart: each command with the lines that the page says it prints."""
    command, shown = "", list[str]()
    for line in text.splitlines():
        if command.endswith("\\"):
            command = f"{command[:-1]}{line.removeprefix('> ').lstrip()}"
        elif line.startswith("$ "):
            if command:
                yield command, shown
            command, shown = line.removeprefix("$ "), []
        else:
            assert command, f"a console block begins with a command after '$ ', not with {line!r}"
            if line.strip():
                shown.append(line)
    if command:
        yield command, shown


def is_printed(shown: str, printed: str) -> bool:
    """Return whether a line was printed, for any numbers, any width of columns, and anything in the place of ``…``."""
    wanted, end = "", 0
    line = " ".join(shown.split())
    for varying in _VARYING.finditer(line):
        wanted += re.escape(line[end : varying.start()]) + (r"\d+" if varying[0].isdigit() else ".*")
        end = varying.end()
    wanted += re.escape(line[end:])
    return any(re.fullmatch(wanted, " ".join(one.split())) for one in printed.splitlines())
