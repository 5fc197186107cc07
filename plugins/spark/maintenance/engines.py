"""Engines: where the tasks of a job run."""

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
    """What a function is called with; a small value that pickles."""

    @property
    def size(self) -> int:
        """What progress counts for it."""
        ...


T = TypeVar("T", bound=Task)
R = TypeVar("R")
ENGINES: Final = ("inline", "process", "spark")
Report = Callable[[str, int, int], None]
"""Called with what is being done, how much is done, and of how much."""


def silent(_what: str, _done: int, _total: int) -> None:
    """Report nothing."""


class Engine(abc.ABC):
    """Runs the same function on every task, in any order."""

    parallelism: int
    """How many tasks run at once."""

    def run(self, what: str, function: Callable[[T], R], tasks: Sequence[T], report: Report = silent) -> list[R]:
        """Return the results, small values that pickle, in the tasks' order.

        Args:
            what: what is being done, for ``report``.
            function: of a module's top level.
            tasks: one call each.
            report: called with the sizes of the tasks that are done.

        Raises:
            Exception: what a task raised; with Spark a MaintenanceError that has its text.
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
        """Yield each task's number and result."""

    def close(self) -> None:  # noqa: B027 -- not every engine starts something
        """End what it has started for itself. Idempotent."""


class InlineEngine(Engine):
    """One task after the other, in this process."""

    parallelism = 1

    def _results(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        return enumerate(map(function, tasks))


class ProcessEngine(Engine):
    """Processes of this machine, started with the first task and kept until :meth:`close`.

    They import the program's main module: a script that uses this needs ``if __name__ == "__main__":``.

    Args:
        workers: how many; as many as there are processors this process may use without it.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.parallelism = workers or len(os.sched_getaffinity(0))
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None

    def _results(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        if self._pool is None:
            # Spawned: a forked process would inherit threads' locks and Spark's sockets.
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
        """Stop the session, if it is its own."""
        if self._own:
            self._spark.stop()


def engine_of(name: str, *, workers: int | None = None, master: str = "local[*]") -> Engine:
    """Return an engine by its name.

    Raises:
        MaintenanceError: there is none of that name.
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
    """Return what a task raised, without Spark's pages around it: the last line of the Python traceback."""
    lines = [line.strip() for line in str(error).splitlines()]
    named = [line for line in lines if line.startswith("flintmq.") and ": " in line]
    return MaintenanceError(named[0].partition(": ")[2] if named else f"Spark failed: {str(error)[:2000]}")
