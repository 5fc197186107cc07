"""Engines, which run the tasks of a maintenance job in this process, in several processes, or on Spark."""

from __future__ import annotations

import abc
import concurrent.futures
import importlib.util
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from flintmq.plugins.spark.errors import MaintenanceError, RuntimeMissingError
from flintmq.plugins.spark.job_progress import watched_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Task(Protocol):
    """The interface of a maintenance task. A task describes one part of a job's work; an engine passes it as the argument to a
    function. A task is a small picklable value."""

    @property
    def size(self) -> int:
        """The amount of work of the task, for example in bytes of the log. The progress of a job is the sum for all finished
        tasks."""
        ...


T = TypeVar("T", bound=Task)
R = TypeVar("R")
ENGINES: Final = ("inline", "process", "spark")
Report = Callable[[str, int, int], None]
"""Function that reports the progress of a job. Its arguments are the job's current step, the amount of work done, and the total
amount of work."""


def silent(_what: str, _done: int, _total: int) -> None:
    """Ignore a report of the progress of a maintenance job."""


class Engine(abc.ABC):
    """The interface of an engine, which calls a function with every task of a maintenance job, in any order."""

    parallelism: int
    """Number of tasks that the engine runs at the same time."""

    def run(self, what: str, function: Callable[[T], R], tasks: Sequence[T], report: Report = silent) -> list[R]:
        """Call a function with each task, and return the results in the order of the tasks.

        Args:
            what: the name of the job's step, which is passed to ``report``.
            function: a function at a module's top level, called with each task. Its results must be small picklable values.
            tasks: the arguments.
            report: called after each task with the name of the step, the size of the finished tasks, and the size of all tasks.

        Raises:
            Exception: a task's error. With Spark it is a MaintenanceError with the text of the task's error.
        """
        done, total = 0, sum(task.size for task in tasks)
        results: dict[int, R] = {}
        for number, result in self._results(function, tasks):
            results[number] = result
            done += tasks[number].size
            report(what, done, total)
        return [results[number] for number in range(len(tasks))]

    @abc.abstractmethod
    def _results(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Run the tasks of a maintenance job, and yield the index and the result of each finished task."""

    def close(self) -> None:  # noqa: B027 -- not every engine starts something
        """Stop the processes or the Spark session that the engine started. Idempotent."""


class InlineEngine(Engine):
    """An engine that runs the tasks of a maintenance job one after another in this process."""

    parallelism = 1

    def _results(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        return enumerate(map(function, tasks))


class ProcessEngine(Engine):
    """An engine that runs maintenance tasks in processes of this machine. The processes start with the first task and end with
    :meth:`close`.

    The processes import the program's main module, so a script that uses this engine needs ``if __name__ == "__main__":``.

    Args:
        workers: the number of processes; by default the number of processors that this process may use.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.parallelism = workers or len(os.sched_getaffinity(0))
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None

    def _results(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        if self._pool is None:
            # Processes are spawned, because a forked process would inherit the locks of threads and Spark's sockets.
            context = multiprocessing.get_context("spawn")
            self._pool = concurrent.futures.ProcessPoolExecutor(self.parallelism, mp_context=context)
        futures = {self._pool.submit(function, task): number for number, task in enumerate(tasks)}
        try:
            for future in concurrent.futures.as_completed(futures):
                yield futures[future], future.result()
        finally:
            for future in futures:
                future.cancel()

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)


class SparkEngine(Engine):
    """An engine that runs maintenance tasks in a Spark session: the given session, the active session, or a new session.

    Args:
        master: the URL of the Spark master for a new session.
        spark: the session to use; by default the active session, or a new session.
    """

    def __init__(self, master: str = "local[*]", spark: SparkSession | None = None) -> None:
        self._own = spark is None
        if spark is None:
            from flintmq.plugins.spark.session import session

            spark = session(master, "flintmq maintenance")
        self._spark = spark
        self.parallelism = int(spark.sparkContext.defaultParallelism)

    def run(self, what: str, function: Callable[[T], R], tasks: Sequence[T], report: Report = silent) -> list[R]:
        total = sum(task.size for task in tasks)

        def tell(done: int, known: int) -> None:
            report(what, total * done // known, total)

        with watched_tasks(self._spark.sparkContext, "flintmq maintenance", tell):
            found = [result for _number, result in self._results(function, tasks)]
        report(what, total, total)
        return found

    def _results(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        if tasks:
            try:
                yield from enumerate(
                    self._spark.sparkContext.parallelize(list(tasks), len(tasks)).map(function).collect()
                )
            except Exception as error:
                raise _from_spark(error) from error

    def close(self) -> None:
        """Stop the Spark session if this engine created the session."""
        if self._own:
            self._spark.stop()


def engine_of(name: str, *, workers: int | None = None, master: str = "local[*]") -> Engine:
    """Return the engine for maintenance tasks with the given name, such as ``spark``.

    Raises:
        MaintenanceError: no engine has the name.
        RuntimeMissingError: numpy, pyarrow or PySpark is not installed.
    """
    missing = [module for module in ("numpy", "pyarrow") if importlib.util.find_spec(module) is None]
    if missing:
        raise RuntimeMissingError(f"{' and '.join(missing)} not installed: pip install '.[spark]' in FlintMQ's folder")
    if name == "inline":
        return InlineEngine()
    if name == "process":
        return ProcessEngine(workers)
    if name == "spark":
        return SparkEngine(f"local[{workers}]" if workers and master == "local[*]" else master)
    raise MaintenanceError(f"there is no engine '{name[:80]}'; there are: {', '.join(ENGINES)}")


def _from_spark(error: Exception) -> Exception:
    """Return a MaintenanceError with the text of a task's error. The text that Spark adds around the task's text is removed."""
    lines = [line.strip() for line in str(error).splitlines()]
    named = [line for line in lines if line.startswith("flintmq.") and ": " in line]
    return MaintenanceError(named[0].partition(": ")[2] if named else f"Spark failed: {str(error)[:2000]}")
