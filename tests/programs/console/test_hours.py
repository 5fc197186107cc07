"""The last day is kept in a file of fixed size that survives a restart, a crash and a full disk."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra 'console' is not installed")
pytest.importorskip("jinja2", reason="the extra 'console' is not installed")

from flintmq.programs.cluster_view.history import Sample
from flintmq.programs.console.hours import EVERY_S, FILE_BYTES, KEPT, Hours
from flintmq.testing.clock import ManualClock
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.tests.support.console_visits import visiting

SAMPLE = Sample(0.0, 12.5, 3.0, 42, None)


def filled(clock: ManualClock, file: Path | None, minutes: int) -> Hours:
    """The history of so many minutes, each with its number as the lag."""
    hours = Hours(clock, file)
    for number in range(minutes):
        hours.note(Sample(0.0, 1.0, 2.0, number))
        clock.advance_ms(int(EVERY_S * 1000))
    return hours


def test_saved_samples_of_cluster_figures_are_read_again_after_a_restart_of_the_console(tmp_path: Path) -> None:
    """What is not known stays unknown, and figures come back as they were."""
    clock, file = ManualClock(), tmp_path / "deep" / "hours.ring"
    hours = Hours(clock, file)
    hours.note(SAMPLE)
    (before,), (again,) = hours.since(60), Hours(clock, file).since(60)
    assert before == again
    assert (again.put_per_s, again.get_per_s, again.lag, again.put_latency_99_ms) == (12.5, 3.0, 42, None)
    assert again.at_s == clock.now_ms() / 1000


def test_the_file_of_saved_samples_keeps_only_the_samples_of_the_last_day(tmp_path: Path) -> None:
    """However long the console runs."""
    clock, file = ManualClock(), tmp_path / "hours.ring"
    hours = filled(clock, file, KEPT + 100)
    assert file.stat().st_size <= FILE_BYTES
    for one in (hours, Hours(clock, file)):
        lags = [sample.lag for sample in one.since(25 * 3600)]
        assert lags == list(range(100, KEPT + 100))
        assert [sample.lag for sample in one.since(3600)] == list(range(KEPT + 40, KEPT + 100))


@pytest.mark.parametrize("damage", ["cut", "torn", "zeros", "text", "longer"])
def test_intact_samples_are_read_from_a_damaged_file_of_saved_samples(tmp_path: Path, damage: str) -> None:
    """A power cut may leave any of it; the console starts, and the rest is there."""
    clock, file = ManualClock(), tmp_path / "hours.ring"
    filled(clock, file, 10)
    data = bytearray(file.read_bytes())
    last = len(data) - 44
    if damage == "cut":
        data = data[:-7]
    elif damage == "torn":
        data[last + 20] ^= 0xFF
    elif damage == "zeros":
        data[last:] = bytes(44)
    elif damage == "text":
        data = bytearray(b"not a ring at all\n" * 100)
    else:
        data += bytes(FILE_BYTES)
    file.write_bytes(data)
    found = [sample.lag for sample in Hours(clock, file).since(86_400)]
    assert found == {"text": [], "longer": list(range(10))}.get(damage, list(range(9)))


def test_a_failed_write_of_the_file_of_saved_samples_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The page goes on from memory."""
    clock, file = ManualClock(), tmp_path / "hours.ring"
    file.mkdir()
    with caplog.at_level(logging.ERROR, "flintmq.console"):
        hours = filled(clock, file, 3)
    assert len(hours.since(3600)) == 3
    told = [record.getMessage() for record in caplog.records]
    assert sum("is not written" in line for line in told) == 1


def test_the_console_collects_samples_of_cluster_figures_even_if_no_page_is_open(tmp_path: Path) -> None:
    """Charts that begin when somebody looks show nothing of what brought them here."""

    async def run(cluster: EmbeddedCluster) -> None:
        async with visiting(cluster.name_server.address) as browser:
            empty = await browser.get("/hours")
            assert empty.status == 200
            assert "Nothing has been noted in this time yet" in empty.plain
            browser.console.start()
            async with asyncio.timeout(20):
                while not browser.console.hours.since(60):  # noqa: ASYNC110 - a broker is waited for
                    await asyncio.sleep(0.01)
            for path in ("/hours", "/hours?span=24", "/"):
                page = await browser.get(path)
                assert [one for tag, one in page.elements if tag == "polyline"], path
            assert "The last hours" in page.plain

    with EmbeddedCluster(tmp_path / "stores", layout={"broker-a": 0}) as cluster:
        asyncio.run(run(cluster))
