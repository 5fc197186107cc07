"""The screen of ``flintmq top`` with the details of a broker, topic or group, or with all alarms."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from flintmq.programs.top.details import Part


class DetailScreen(Screen[None]):
    """Shows titled tables below each other, refreshed periodically. The escape key closes the screen.

    Args:
        ask: fetches the tables.
        refresh_s: seconds between two refreshes.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "Back"),
        Binding("q", "app.quit", "Quit"),
        Binding("p", "pause", "Pause"),
    ]

    def __init__(self, ask: Callable[[], Awaitable[Sequence[Part]]], refresh_s: float) -> None:
        super().__init__()
        self._ask = ask
        self._refresh_s = refresh_s
        self._paused = False
        self._asking = asyncio.Lock()

    def compose(self) -> ComposeResult:
        """Yield the widgets of the screen with details."""
        yield Static("PAUSED", id="paused")
        with VerticalScroll():
            yield Static("asking …", id="parts", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Start the periodic refresh of the screen with details."""
        self.query_one("#paused").display = False
        self.query_one(VerticalScroll).focus()
        self.set_interval(self._refresh_s, self.look)
        self.run_worker(self.look())

    async def look(self) -> None:
        """Refresh the screen with details, unless the refresh is paused. Refreshes do not overlap."""
        if self._paused or self._asking.locked():
            return
        async with self._asking:
            parts = await self._ask()
            # If the screen was closed while its data was requested, its widgets no longer exist and are not updated.
            if not self.is_attached:
                return
            self.query_one("#parts", Static).update(Group(*(_shown(part) for part in parts)))

    def action_pause(self) -> None:
        """Pause or resume the periodic refresh of the screen with details."""
        self._paused = not self._paused
        self.query_one("#paused").display = self._paused


def _shown(part: Part) -> RenderableType:
    """Return a titled table of text as a table for the terminal. Markup in cells is not interpreted."""
    table = Table(
        box=box.SIMPLE_HEAD if any(part.headings) else None,
        show_header=any(part.headings),
        pad_edge=False,
    )
    for heading in part.headings:
        is_number = heading.endswith("#")
        table.add_column(Text(heading.removesuffix("#")), justify="right" if is_number else "left", no_wrap=is_number)
    for row in part.rows:
        table.add_row(*(Text(cell) for cell in row))
    return Group(Text(part.title, style="bold"), *([table] if part.rows else []), Text(""))
