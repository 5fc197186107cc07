"""The lander in a process of its own: JSON lines over its standard input and output.

The broker's end asks one thing at a time and waits on a thread; the process ends when its input does, whatever became of the
broker. It may be killed at any moment: the landing zone's next opening puts right what that leaves.
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
    """What :class:`flintmq.plugins.spark.landing.lander.Lander` does, elsewhere. One thread; :meth:`abort` from any.

    Raises what it raises; in place of StoreError and OSError a LandingTroubleError, which also says that the process died.
    """

    def __init__(self, task: LandingTask, begin_offset_bytes: int) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,  # an interrupt from the terminal is the broker's to handle
        )
        try:
            answer = self._ask({"task": task.to_json(), "begin": begin_offset_bytes})
        except BaseException:
            self.close()
            raise
        self.committed_bytes: int = answer["committed"]

    def land(self, limit_offset_bytes: int, max_bytes: int, *, skip_lost: bool = False) -> Landed:
        """See :meth:`flintmq.plugins.spark.landing.lander.Lander.land`."""
        landed = Landed(**self._ask({"limit": limit_offset_bytes, "max_bytes": max_bytes, "skip_lost": skip_lost}))
        self.committed_bytes = landed.committed_bytes
        return landed

    def abort(self) -> None:
        """End the process at once; a caller that waits for it gets a LandingTroubleError."""
        self._process.kill()

    def close(self) -> None:
        """Let it finish, and end it. Idempotent."""
        process = self._process
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:  # it is dead: no process takes what was still to be written
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
            raise LandingTroubleError(f"the landing process cannot be asked: {error}") from error
        if not line.endswith("\n"):
            raise LandingTroubleError(f"the landing process died (exit code {process.poll()})")
        answer: dict[str, Any] = json.loads(line)
        if "error" not in answer:
            return answer
        kind, text = answer["kind"], answer["error"]
        if kind == "loss":
            raise LandingLossError(text, answer["from"], answer["to"])
        raise LandingError(text) if kind == "landing" else LandingTroubleError(text)


def main(source: TextIO, sink: TextIO) -> None:
    """Run the process: one line in, one line out, until the input ends."""
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
    """Return whether trying again is of no use."""
    from flintmq.plugins.spark.errors import SparkPluginError

    return isinstance(error, LandingError | SparkPluginError)


if __name__ == "__main__":
    from flintmq.programs.cli.serving_output import SERVING_OUTPUT

    SERVING_OUTPUT.begin()  # a log that nobody reads must not keep what is acknowledged from landing
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    os.nice(_NICE)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is not an answer
    try:
        main(sys.stdin, answers)
    except BrokenPipeError:
        os._exit(0)  # the broker is gone
    SERVING_OUTPUT.end()
