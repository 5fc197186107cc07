"""Services that have threads elsewhere must do the same on a seeded loop: when they are woken, in time, not after their end."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.core.io.threads import threads_here
from flintmq.flush.service_thread import ServiceThread
from flintmq.testing.choices import Choices
from flintmq.testing.seeded_loop import SeededClock, SeededLoop


class Service(ServiceThread):
    """Notes when its rounds are."""

    def __init__(self, loop: SeededLoop, wait_s: float | None = None, rest_s: float = 0.0) -> None:
        super().__init__("test", SeededClock(loop))
        self.rounds: list[float] = []
        self.finished = 0
        self.rest_s = rest_s
        self._wait_s = wait_s

    def run_once(self, now_s: float) -> None:
        self.rounds.append(now_s)

    def wait_s(self, now_s: float) -> float | None:
        return self._wait_s

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def loop() -> SeededLoop:
    return SeededLoop(Choices(1))


def test_a_service_that_waits_without_a_timeout_runs_only_after_a_wakeup_call(
    loop: SeededLoop,
) -> None:
    service = Service(loop)

    async def main() -> None:
        service.start()
        await asyncio.sleep(10)
        assert not service.rounds
        for _ in range(3):
            service.wakeup()
        assert not service.rounds, "a round ran on the stack of its caller"
        await asyncio.sleep(1)

    loop.run(main())
    assert len(service.rounds) == 1
    assert 10 < service.rounds[0] < 10.1


def test_a_service_on_a_seeded_event_loop_starts_no_round_before_its_pause_has_ended(loop: SeededLoop) -> None:
    service = Service(loop, wait_s=1.0, rest_s=5.0)

    async def main() -> None:
        service.start()
        await asyncio.sleep(2)
        assert len(service.rounds) == 1
        service.wakeup()
        await asyncio.sleep(3)
        assert len(service.rounds) == 1, "it did not rest"
        await asyncio.sleep(2)
        assert len(service.rounds) == 2

    loop.run(main())


def test_a_service_in_a_simulation_does_not_run_again_after_it_has_ended(loop: SeededLoop) -> None:
    service = Service(loop, wait_s=0.01)

    async def main() -> None:
        service.start()
        await asyncio.sleep(1)
        assert service.end(1.0)
        rounds = len(service.rounds)
        service.wakeup()
        await asyncio.sleep(1)
        assert len(service.rounds) == rounds > 10

    loop.run(main())
    assert service.finished == 1


def test_a_periodic_call_on_a_seeded_event_loop_stops_after_its_cancel_function_is_called(loop: SeededLoop) -> None:
    called: list[float] = []

    async def main() -> None:
        end = threads_here().repeat("test", 1.0, lambda: called.append(loop.time()))
        await asyncio.sleep(3.5)
        end()
        await asyncio.sleep(10)

    loop.run(main())
    assert [int(at_s) for at_s in called] == [1, 2, 3]


def test_a_worker_on_a_seeded_event_loop_returns_the_result_or_the_error_of_a_submitted_function(
    loop: SeededLoop,
) -> None:
    async def main() -> None:
        worker = threads_here().worker("test")
        assert worker.submit(divmod, 7, 2).result(0) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            worker.submit(divmod, 7, 0).result(0)

    loop.run(main())
