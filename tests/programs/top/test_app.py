"""The screen, driven by keys as in a terminal and compared as text: what is stored was looked at."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("textual", reason="Textual is not installed: pip install '.[top]'")

from textual.pilot import Pilot
from textual.widgets import DataTable

from flintmq.programs.top.app import TopApp
from flintmq.programs.top.details import Part
from flintmq.programs.top.screens import DetailScreen

SCREENS = Path(__file__).parent / "screens"
SIZE = (80, 24)


def screen_text(app: TopApp) -> str:
    """Return what stands on the screen, line by line."""
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips()) + "\n"


def drive(view: Any, test: Callable[[TopApp, Pilot[None]], Awaitable[None]], size: tuple[int, int] = SIZE) -> None:
    """Run the application without a terminal; time goes on when the test looks."""

    async def run() -> None:
        app = TopApp(view, refresh_s=3_600)
        async with app.run_test(size=size) as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            await test(app, pilot)

    asyncio.run(run())


async def press(app: TopApp, pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await app.workers.wait_for_complete()
    await pilot.pause()


def compare(app: TopApp, name: str) -> None:
    """Compare the screen with the stored one; FLINTMQ_STORE_SCREENS=1 stores what is to be looked at, and then committed."""
    if os.environ.get("FLINTMQ_STORE_SCREENS"):
        (SCREENS / f"{name}.txt").write_text(screen_text(app))
    assert screen_text(app) == (SCREENS / f"{name}.txt").read_text(), f"tests/programs/top/screens/{name}.txt differs"


def test_the_main_screen_shows_the_cluster(view: Any) -> None:
    async def test(app: TopApp, pilot: Pilot[None]) -> None:
        compare(app, "top")

    drive(view, test)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("group", ("enter",)),
        ("conflict", ("down", "enter")),
        ("broker", ("shift+tab", "shift+tab", "enter")),
        ("topic", ("shift+tab", "enter")),
        ("alarms", ("a",)),
        ("filtered", ("/", "o", "r", "d", "enter")),
        ("by-name", ("s", "s", "s")),
        ("with-system", ("i",)),
    ],
)
def test_each_navigation_key_opens_its_screen(view: Any, name: str, keys: tuple[str, ...]) -> None:
    async def test(app: TopApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, *keys)
        compare(app, name)

    drive(view, test)


def test_the_escape_key_closes_a_detail_screen_and_clears_a_filter(view: Any) -> None:
    async def test(app: TopApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "enter")
        await press(app, pilot, "escape")
        compare(app, "top")
        await press(app, pilot, "/", "x", "escape")
        compare(app, "top")

    drive(view, test)


def test_a_paused_screen_is_not_updated_with_new_figures(view: Any) -> None:
    async def test(app: TopApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "p")
        assert "PAUSED" in screen_text(app)
        looks = view.looks
        view.all_groups = ()
        await app.look()
        assert view.looks == looks
        assert "billing" in screen_text(app)
        await press(app, pilot, "p")
        await app.look()
        await pilot.pause()
        assert "0 groups by lag" in screen_text(app)

    drive(view, test)


def test_a_detail_screen_can_be_paused_and_ignores_other_keys(view: Any) -> None:
    async def test(app: TopApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "enter", "s", "/", "i", "a", "p")
        assert screen_text(app).startswith("PAUSED\ngroup billing")
        await press(app, pilot, "escape")
        compare(app, "top")

    drive(view, test)


def test_the_cursor_stays_on_its_row_when_the_order_changes(view: Any) -> None:
    async def test(app: TopApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "down")
        table = app.query_one("#groups", DataTable)
        view.all_groups = [one for one in reversed(view.all_groups) if one.name != "billing"]
        await app.look()
        assert table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value == "odd"

    drive(view, test)


def test_an_unreachable_cluster_is_reported_on_the_screen(view: Any) -> None:
    async def test(app: TopApp, pilot: Pilot[None]) -> None:
        view.error = "name servers: nobody answers"
        view.all_brokers = view.all_topics = view.all_groups = ()
        await app.look()
        await pilot.pause()
        assert "ERROR name servers: nobody answers" in screen_text(app)
        await press(app, pilot, "enter", "s")
        assert app.is_running

    drive(view, test)


def test_the_top_screen_can_be_closed_during_a_poll_of_the_brokers(view: Any) -> None:
    """The answer comes when there is no screen any more to show it on."""
    asked, answers, overview = asyncio.Event(), asyncio.Event(), view.overview

    async def slow() -> Any:
        asked.set()
        await answers.wait()
        return await overview()

    async def run() -> None:
        app = TopApp(view, refresh_s=3_600)
        async with app.run_test(size=SIZE) as pilot:
            await app.workers.wait_for_complete()
            view.overview = slow
            look = asyncio.create_task(app.look())
            await asked.wait()
            await pilot.press("q")
        answers.set()
        await look
        app.action_system()  # a key that was pressed before and is looked at now

    asyncio.run(run())


def test_a_detail_screen_can_be_closed_during_a_poll_of_the_brokers(view: Any) -> None:
    asked, answers = asyncio.Event(), asyncio.Event()

    async def slow() -> list[Part]:
        asked.set()
        await answers.wait()
        return []

    async def test(app: TopApp, pilot: Pilot[None]) -> None:
        screen = DetailScreen(slow, 3_600)
        app.push_screen(screen)
        await asked.wait()
        screen._asking = asyncio.Lock()  # a second look beside that of the screen, which ends with it
        look = asyncio.create_task(screen.look())
        await asyncio.sleep(0)
        await pilot.press("escape")
        answers.set()
        await look
        compare(app, "top")

    drive(view, test)


def test_the_detail_screen_of_a_deleted_group_says_that_the_group_no_longer_exists(view: Any) -> None:
    async def test(app: TopApp, pilot: Pilot[None]) -> None:
        view.group = _nothing
        await press(app, pilot, "enter")
        assert "group billing is there no more" in screen_text(app)

    drive(view, test)


async def _nothing(name: str) -> None:
    return None


def test_light_and_dark_themes_show_the_same_text(view: Any) -> None:
    async def test(app: TopApp, pilot: Pilot[None]) -> None:
        assert app.current_theme.dark
        await press(app, pilot, "d")
        assert not app.current_theme.dark
        compare(app, "top")

    drive(view, test)


def test_the_screen_shows_the_same_text_with_and_without_color(view: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels and states are words; NO_COLOR takes nothing away."""
    monkeypatch.setenv("NO_COLOR", "1")

    async def test(app: TopApp, pilot: Pilot[None]) -> None:
        assert app.no_color
        compare(app, "top")

    drive(view, test)


def test_a_list_of_1000_topics_shows_only_200_topics_and_the_total_count(view: Any) -> None:
    import attrs

    view.all_topics = [attrs.evolve(view.all_topics[0], name=f"T{n}", put_per_s=float(n)) for n in range(1_000)]

    async def test(app: TopApp, pilot: Pilot[None]) -> None:
        assert "200 of 1000 topics by put/s" in screen_text(app)
        assert "T999" in screen_text(app)

    drive(view, test)
