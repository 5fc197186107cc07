"""The real mqadmin in one JVM, driven over its standard input, and clients of ours for it to look at."""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from .mqadmin_commands import Command

RUNNER = Path(__file__).with_name("MqadminRunner.java")
LOGBACK = "<configuration><root level='OFF'/></configuration>"
TROUBLE = re.compile(r"Exception\b|Error: |\bCODE: \d|command failed|stack trace", re.IGNORECASE)
START_S = 90


class Mqadmin(AbstractContextManager["Mqadmin"]):
    """``MQAdminStartup`` of the peer kit's jars. Use it in a ``with`` statement.

    Args:
        peer: the peer kit's folder.
        work: an empty folder for its home and its files.
        name_server: what it is told with ``-n``.
        account: access key and secret key to sign with.
    """

    def __init__(self, peer: Path, work: Path, name_server: str, account: tuple[str, str] | None = None) -> None:
        conf = work / "conf"
        conf.mkdir(parents=True)
        (conf / "logback_tools.xml").write_text(LOGBACK)
        lines = [f"accessKey: {account[0]}", f"secretKey: {account[1]}"] if account else []
        (conf / "tools.yml").write_text("\n".join(lines))
        self._name_server = name_server
        # One shell, replaced by the JVM: common.sh knows where the jars lie and what the JVM must open to them.
        script = (
            f'. "{peer}/common.sh"; need_jars; exec "$JAVA" -Xms64m -Xmx256m "${{OPENS[@]}}" "-Duser.home=$ROCKETMQ_HOME" '
            f'"-Drmq.logback.configurationFile=$ROCKETMQ_HOME/conf/logback_tools.xml" -cp "$JARS/*" "{RUNNER}"'
        )
        environment = {
            name: value for name, value in os.environ.items() if name not in ("NAMESRV_ADDR", "JAVA_TOOL_OPTIONS")
        }
        self._errors = (work / "errors").open("w+b")
        self._process = subprocess.Popen(
            ["bash", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=work,
            env=environment | {"ROCKETMQ_HOME": str(work)},
        )

    def __enter__(self) -> Self:
        return self

    def run(self, line: str, limit_s: int = 30) -> str:
        """Everything a command printed. Raises AssertionError when the JVM is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = [str(limit_s), *line.split(), "-n", self._name_server]
        self._process.stdin.write(("\t".join(words) + "\n").encode())
        self._process.stdin.flush()
        size = self._process.stdout.readline()
        if not size:
            self._errors.seek(0)
            raise AssertionError(f"the JVM ended in '{line}': {self._errors.read()[-3000:].decode(errors='replace')}")
        return self._process.stdout.read(int(size)).decode(errors="replace")

    def check(self, command: Command, names: dict[str, str]) -> str:
        """What is wrong with a command's output; empty when it is as it should be."""
        line = command.line.format(**names)
        printed = self.run(line, command.limit_s)
        literal = {name: re.escape(value) for name, value in names.items()}
        patterns = [pattern.format(**literal) for pattern in command.wanted]
        missing = [pattern for pattern in patterns if re.search(pattern, printed, re.MULTILINE) is None]
        trouble = TROUBLE.search(printed)
        if not missing and trouble is None:
            return ""
        return f"mqadmin {line}\n  not found: {missing}\n  trouble: {trouble}\n  printed: {printed[-1500:]}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        self._errors.close()
