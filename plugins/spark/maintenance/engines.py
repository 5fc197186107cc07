"""Engines: where the tasks of a job run."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from flintmq.plugins.spark.errors import RuntimeMissingError
from flintmq.plugins.spark.maintenance.errors import MaintenanceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")
ENGINES: Final = ("inline", "process", "spark")
Progress = Callable[[int], None]
"""Called with how much is done."""
_POLL_S: Final = 0.2


class Engine(Protocol):
    """Runs the same function on every task, in any order; tasks and results are small values that pickle."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""
        ...

    def run(
        self, function: Callable[[T], R], tasks: Sequence[T], sizes: Sequence[int], progress: Progress | None
    ) -> list[R]:
        """The results, in the tasks' order.

        Args:
            function: of a module's top level.
            tasks: one call each.
            sizes: what ``progress`` counts for each task.
            progress: called with the sum of those that are done.

        Raises:
            Exception: what a task raised; with Spark a MaintenanceError that has its text.
        """
        ...

    def close(self) -> None:
        """End what it has started for itself. Idempotent."""
        ...


class InlineEngine:
    """One task after the other, in this process."""

    parallelism = 1

    def run(
        self, function: Callable[[T], R], tasks: Sequence[T], sizes: Sequence[int], progress: Progress | None
    ) -> list[R]:
        results = []
        done = 0
        for task, size in zip(tasks, sizes, strict=True):
            results.append(function(task))
            done += size
            if progress is not None:
                progress(done)
        return results

    def close(self) -> None:
        """Nothing was started."""


class ProcessEngine:
    """Processes of this machine, started with the first task and kept until :meth:`close`.

    They import the program's main module: a script that uses this needs ``if __name__ == "__main__":``.

    Args:
        workers: how many; as many as there are processors this process may use without it.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.parallelism = workers or len(os.sched_getaffinity(0))
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None

    def run(
        self, function: Callable[[T], R], tasks: Sequence[T], sizes: Sequence[int], progress: Progress | None
    ) -> list[R]:
        if self._pool is None:
            # Spawned: a forked process would inherit threads' locks and Spark's sockets.
            context = multiprocessing.get_context("spawn")
            self._pool = concurrent.futures.ProcessPoolExecutor(self.parallelism, mp_context=context)
        futures = {self._pool.submit(function, task): size for task, size in zip(tasks, sizes, strict=True)}
        done = 0
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
                done += futures[future]
                if progress is not None:
                    progress(done)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the processes. Idempotent."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)


class SparkEngine:
    """Tasks of a Spark session: the active one, or one of its own on this machine.

    Args:
        master: where Spark runs, when no session is running yet.
        spark: a session.
    """

    def __init__(self, master: str = "local[*]", spark: SparkSession | None = None) -> None:
        self._own = spark is None
        if spark is None:
            from flintmq.plugins.spark.session import session

            spark = session(master, "flintmq maintenance")
        self._spark = spark

    @property
    def parallelism(self) -> int:
        return int(self._spark.sparkContext.defaultParallelism)

    def run(
        self, function: Callable[[T], R], tasks: Sequence[T], sizes: Sequence[int], progress: Progress | None
    ) -> list[R]:
        if not tasks:
            return []
        context = self._spark.sparkContext
        group = f"flintmq-{uuid.uuid4().hex}"
        watched = threading.Event()
        watcher = None
        if progress is not None:
            watcher = threading.Thread(
                target=_watch,
                args=(context, group, list(sizes), progress, watched),
                name="flintmq-progress",
                daemon=True,
            )
            watcher.start()
        try:
            context.setJobGroup(group, "flintmq maintenance", interruptOnCancel=True)
            found: list[R] = context.parallelize(list(tasks), len(tasks)).map(_Call(function)).collect()
        except Exception as error:
            raise _from_spark(error) from error
        finally:
            watched.set()
            if watcher is not None:
                watcher.join()
        if progress is not None:
            progress(sum(sizes))
        return found

    def close(self) -> None:
        """Stop the session, if it is its own."""
        if self._own:
            self._spark.stop()


class _Call:
    """A function by its name: what Spark's pickle would otherwise take by value."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._module, self._name = function.__module__, function.__qualname__

    def __call__(self, task: Any) -> Any:
        import importlib

        return getattr(importlib.import_module(self._module), self._name)(task)


def engine_of(name: str, *, workers: int | None = None, master: str = "local[*]") -> Engine:
    """An engine by its name.

    Raises:
        MaintenanceError: there is none of that name.
        RuntimeMissingError: numpy, pyarrow or PySpark is not installed.
    """
    import importlib.util

    missing = [module for module in ("numpy", "pyarrow") if importlib.util.find_spec(module) is None]
    if missing:
        raise RuntimeMissingError(f"{' and '.join(missing)} not installed: pip install 'flintmq[spark]'")
    if name == "inline":
        return InlineEngine()
    if name == "process":
        return ProcessEngine(workers)
    if name == "spark":
        return SparkEngine(f"local[{workers}]" if workers and master == "local[*]" else master)
    raise MaintenanceError(f"there is no engine '{name[:80]}'; there are: {', '.join(ENGINES)}")


def _watch(context: Any, group: str, sizes: list[int], progress: Progress, done: threading.Event) -> None:
    """Tell of finished tasks while a job runs: their number is known, their sizes about."""
    tracker = context.statusTracker()
    each = sum(sizes) / len(sizes)
    while not done.wait(_POLL_S):
        finished = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                stage_info = tracker.getStageInfo(stage)
                finished += stage_info.numCompletedTasks if stage_info is not None else 0
        progress(int(each * finished))


def _from_spark(error: Exception) -> Exception:
    """What a task raised, without Spark's pages around it: the last line of the Python traceback."""
    lines = [line.strip() for line in str(error).splitlines()]
    named = [line for line in lines if line.startswith("flintmq.") and ": " in line]
    return MaintenanceError(named[0].partition(": ")[2] if named else f"Spark failed: {str(error)[:2000]}")
