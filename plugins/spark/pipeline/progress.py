"""How far a pipeline is: tasks of a batch, rows of streams; shown on stderr."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from flintmq.plugins.spark.pipeline.running import StreamCount
    from flintmq.plugins.spark.pipeline.sinks import BoundSink

POLL_S: Final = 0.25


class PipelineProgress(Protocol):
    """Receives how far the pipeline is."""

    def writing(self, sink: BoundSink) -> contextlib.AbstractContextManager[None]:
        """Enter while a batch is written."""
        ...

    def streamed(self, sink: BoundSink, count: StreamCount) -> None:
        """A stream has come so far."""
        ...


class QuietProgress:
    """Discards all progress."""

    @contextlib.contextmanager
    def writing(self, sink: BoundSink) -> Iterator[None]:
        yield

    def streamed(self, sink: BoundSink, count: StreamCount) -> None:
        return None


QUIET: Final = QuietProgress()


class BarProgress:
    """Bars of tasks for batches, counts of rows for streams."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._streams: dict[str, TaskID] = {}

    @contextlib.contextmanager
    def writing(self, sink: BoundSink) -> Iterator[None]:
        bar = self._bars.add_task(sink.sink.name, total=None)
        ended = threading.Event()
        watcher = None
        if not sink.is_remote:
            group = f"flintmq-{sink.planned.loaded.pipeline.name}-{sink.sink.name}"
            sink.spark.sparkContext.setJobGroup(group, f"pipeline sink {sink.sink.name}")
            watcher = threading.Thread(target=self._watch, args=(sink, group, bar, ended), daemon=True)
            watcher.start()
        try:
            yield
        finally:
            ended.set()
            if watcher is not None:
                watcher.join()
            self._bars.update(bar, total=1, completed=1)

    def _watch(self, sink: BoundSink, group: str, bar: TaskID, ended: threading.Event) -> None:
        tracker = sink.spark.sparkContext.statusTracker()
        while not ended.wait(POLL_S):
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
            known = [stage for stage in stages if stage is not None]
            total, done = sum(stage.numTasks for stage in known), sum(stage.numCompletedTasks for stage in known)
            if total:
                self._bars.update(bar, total=total, completed=done)

    def streamed(self, sink: BoundSink, count: StreamCount) -> None:
        name = sink.sink.name
        if name not in self._streams:
            self._streams[name] = self._bars.add_task(name, total=None)
        said = f"{name}: {count.rows:,} rows, {len(count.rows_of):,} batches, {count.rows_per_s:,.0f} rows/s"
        self._bars.update(self._streams[name], description=said)
