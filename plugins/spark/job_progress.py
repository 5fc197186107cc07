"""Reports the progress of a Spark session's jobs: the number of finished tasks."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext

_POLL_S: Final = 0.25


@contextlib.contextmanager
def watched_tasks(context: SparkContext, description: str, report: Callable[[int, int], None]) -> Iterator[None]:
    """Report the number of finished tasks of the Spark jobs that this thread runs in a ``with`` block.

    Args:
        context: the context of a session in this process; Spark Connect has none.
        description: the jobs' description in Spark's user interface.
        report: called on another thread with the number of finished tasks and of all known tasks. Not called while no task is
            known.
    """
    group = f"flintmq-{uuid.uuid4().hex}"
    ended = threading.Event()

    def watch() -> None:
        tracker = context.statusTracker()
        while not ended.wait(_POLL_S):
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
            known = [stage for stage in stages if stage is not None]
            total = sum(stage.numTasks for stage in known)
            if total:
                report(sum(stage.numCompletedTasks for stage in known), total)

    context.setJobGroup(group, description, interruptOnCancel=True)
    watcher = threading.Thread(target=watch, name="flintmq-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
