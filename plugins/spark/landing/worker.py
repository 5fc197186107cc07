"""Runs the lander in a separate process, with JSON lines on its standard input and output.

The broker sends one request at a time and waits on a thread. The process ends at the end of its input, which is also closed if
the broker dies. The process may be killed at any time: the next opening of the landing zone repairs an interrupted commit.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from typing import Any, Final, TextIO

import attrs

from flintmq.core.errors import FlintError
from flintmq.plugins.spark.landing.task import Landed, LandingError, LandingLossError, LandingTask, LandingTroubleError

MODULE: Final = "flintmq.plugins.spark.landing.worker"
_NICE: Final = 19
_STOP_S: Final = 5.0


class LanderProcess:
    """Runs a :class:`flintmq.plugins.spark.landing.lander.Lander` in a process. Not thread-safe, except for :meth:`abort`.

    The methods of this class raise the lander's errors, except that StoreError and OSError become LandingTroubleError.
    LandingTroubleError is also raised if the process has died.
    """

    def __init__(self, task: LandingTask, begin_offset_bytes: int) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            # The worker gets its own session, so that Ctrl-C at a terminal reaches only the broker, which stops the worker.
            start_new_session=True,
        )
        try:
            answer = self._ask({"task": task.to_json(), "begin": begin_offset_bytes})
        except BaseException:
            self.close()
            raise
        self.committed_bytes: int = answer["committed"]

    def land(self, limit_offset_bytes: int, max_bytes: int, *, skip_lost: bool = False) -> Landed:
        """Have the process copy the next part of the log to the landing zone; see
        :meth:`flintmq.plugins.spark.landing.lander.Lander.land`."""
        landed = Landed(**self._ask({"limit": limit_offset_bytes, "max_bytes": max_bytes, "skip_lost": skip_lost}))
        self.committed_bytes = landed.committed_bytes
        return landed

    def abort(self) -> None:
        """Kill the lander's process. A thread that waits for an answer of the process gets a LandingTroubleError. Any
        thread."""
        self._process.kill()

    def close(self) -> None:
        """Close the input of the lander's process, and wait for the process to end. After 5 seconds the process is killed.
        Idempotent."""
        process = self._process
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    # BrokenPipeError is ignored, because the pipe to a worker that has already died cannot be flushed.
                    continue
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (OSError, ValueError) as error:
            raise LandingTroubleError(f"the landing process cannot be reached: {error}") from error
        if not line.endswith("\n"):
            raise LandingTroubleError(f"the landing process ended unexpectedly (exit code {process.poll()})")
        answer: dict[str, Any] = json.loads(line)
        if "error" not in answer:
            return answer
        kind, text = answer["kind"], answer["error"]
        if kind == "loss":
            raise LandingLossError(text, answer["from"], answer["to"])
        raise LandingError(text) if kind == "landing" else LandingTroubleError(text)


def main(source: TextIO, sink: TextIO) -> None:
    """Carry out the request to the lander in each line of ``source``, and write one line with the answer to ``sink``. Return
    when the input ends."""
    from flintmq.plugins.spark.landing.lander import Lander

    lander: Lander | None = None
    try:
        for line in source:
            question = json.loads(line)
            try:
                if lander is None:
                    lander = Lander(LandingTask.from_json(question["task"]), question["begin"])
                    answer: dict[str, Any] = {"committed": lander.committed_bytes}
                else:
                    landed = lander.land(question["limit"], question["max_bytes"], skip_lost=question["skip_lost"])
                    answer = attrs.asdict(landed)
            except (FlintError, OSError) as error:
                answer = _failure(error)
            sink.write(json.dumps(answer) + "\n")
            sink.flush()
    finally:
        if lander is not None:
            lander.close()


def _failure(error: Exception) -> dict[str, Any]:
    if isinstance(error, LandingLossError):
        return {"kind": "loss", "error": str(error), "from": error.lost_from_bytes, "to": error.lost_to_bytes}
    return {"kind": "landing" if is_final(error) else "trouble", "error": str(error)}


def is_final(error: Exception) -> bool:
    """Return whether an error of the lander is permanent, so that a retry is useless."""
    from flintmq.plugins.spark.errors import SparkPluginError

    return isinstance(error, LandingError | SparkPluginError)


if __name__ == "__main__":
    from flintmq.programs.cli.serving_output import SERVING_OUTPUT

    # A separate thread writes the log messages, so that landing is not blocked if nobody reads the log output.
    SERVING_OUTPUT.begin()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    os.nice(_NICE)
    answers = os.fdopen(os.dup(1), "w")
    # Libraries' output to stdout is redirected to stderr, because the broker reads stdout as the worker's answers.
    os.dup2(2, 1)
    try:
        main(sys.stdin, answers)
    except BrokenPipeError:
        os._exit(0)  # The broker has died, so the worker exits, too.
    SERVING_OUTPUT.end()
