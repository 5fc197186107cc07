"""The terminal application of ``flintmq top``. This module and :mod:`flintmq.programs.top.screens` need Textual."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Final, Protocol

import attrs
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Input, Static

from flintmq.programs.cluster_view.values import BrokerView, GroupView, Overview, TopicView
from flintmq.programs.top.details import Part, alarm_parts, broker_parts, group_parts, topic_parts
from flintmq.programs.top.screens import DetailScreen
from flintmq.programs.top.tables import (
    BROKERS,
    GROUPS,
    ROWS_MAX,
    TOPICS,
    Kind,
    age_text,
    alarm_lines,
    chosen,
    overview_text,
)

REFRESH_S: Final = 2.0
ALARM_LINES: Final = 2
_OF_THE_TABLES: Final = ("filter", "sort", "pause", "alarms", "system", "clear")
"""Names of the actions that are possible only while the tables are on the screen."""


class Looks(Protocol):
    """The source of the displayed data: a :class:`~flintmq.programs.cluster_view.view.ClusterView`, or a substitute in
    tests."""

    async def overview(self) -> Overview: ...
    async def brokers(self) -> Sequence[BrokerView]: ...
    async def topics(self) -> Sequence[TopicView]: ...
    async def groups(self) -> Sequence[GroupView]: ...
    async def broker(self, name: str, broker_id: int = 0) -> BrokerView | None: ...
    async def topic(self, name: str) -> TopicView | None: ...
    async def group(self, name: str) -> GroupView | None: ...


@attrs.frozen
class _Seen:
    """The data of a cluster that the tables show, fetched at one time."""

    overview: Overview
    values: dict[str, Sequence[Any]]
    """The rows of each table, keyed by the table's title."""


class TopApp(App[None]):
    """Shows a cluster, refreshed periodically. Runs on the terminal's event loop.

    Args:
        view: the source of the data.
        refresh_s: seconds between two refreshes.
    """

    TITLE = "flintmq top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #overview { height: 1; text-style: bold; }
    #alarms { height: auto; max-height: 2; }
    #alarms.bad { color: $error; text-style: bold; }
    DataTable { height: 1fr; border-top: solid $primary; border-title-style: bold; }
    DataTable:focus { border-top: solid $accent; }
    #brokers { height: auto; max-height: 7; }
    #filter { height: 1; border: none; padding: 0; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("p", "pause", "Pause"),
        Binding("a", "alarms", "Alarms"),
        Binding("i", "system", "System"),
        Binding("d", "dark", "Dark"),
        Binding("tab", "app.focus_next", "Next", key_display="tab"),
        Binding("escape", "clear", show=False),
    ]
    KINDS: ClassVar[dict[str, Kind[Any]]] = {kind.title: kind for kind in (BROKERS, TOPICS, GROUPS)}

    def __init__(self, view: Looks, *, refresh_s: float = REFRESH_S) -> None:
        super().__init__()
        self._view = view
        self._refresh_s = refresh_s
        self._seen: _Seen | None = None
        self._paused = False
        self._with_system = False
        self._wanted = ""
        self._sorted_by = {title: kind.sorted_by for title, kind in self.KINDS.items()}
        self._drawing = asyncio.Lock()

    def compose(self) -> ComposeResult:
        """Yield the widgets of the main screen from top to bottom."""
        yield Static("asking …", id="overview", markup=False)
        yield Static("", id="alarms", markup=False)
        for title in self.KINDS:
            yield DataTable[Text](id=title, cursor_type="row", zebra_stripes=False)
        yield Input(placeholder="part of a name; escape shows all", id="filter", select_on_focus=False)
        yield Footer(show_command_palette=False)

    async def on_mount(self) -> None:
        """Create the columns of the tables, and start the periodic refresh."""
        for title, kind in self.KINDS.items():
            table = self._table(title)
            for column in kind.columns:
                heading = Text(column.heading, justify="right" if column.is_number else "left")
                table.add_column(heading, key=column.heading)
        self._table(GROUPS.title).focus()
        self.set_interval(self._refresh_s, self.look)
        self.run_worker(self.look())

    async def look(self) -> None:
        """Refresh the main screen from the view, unless the refresh is paused. Refreshes do not overlap."""
        if self._paused or self._drawing.locked():
            return
        async with self._drawing:
            view = self._view
            overview = await view.overview()
            values = {BROKERS.title: await view.brokers(), TOPICS.title: await view.topics()}
            self._seen = _Seen(overview, {**values, GROUPS.title: await view.groups()})
            self._draw()

    def _table(self, title: str) -> DataTable[Text]:
        return self.screen_stack[0].query_one(f"#{title}", DataTable)

    def _draw(self) -> None:
        # If the program was closed while data was requested, the screen stack is empty, and nothing is drawn.
        if self._seen is None or not self.screen_stack:
            return
        overview = self._seen.overview
        state = "PAUSED" if self._paused else f"{age_text(overview.age_s)} ago"
        base = self.screen_stack[0]
        if not base.query("#overview"):  # While the program closes, the screen has no widgets to draw.
            return
        base.query_one("#overview", Static).update(
            Text(overview_text(overview, state), no_wrap=True, overflow="ellipsis")
        )
        lines = alarm_lines(overview, ALARM_LINES)
        alarms = base.query_one("#alarms", Static)
        alarms.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"))
        alarms.set_class(bool(overview.alarms or overview.errors), "bad")
        for title, kind in self.KINDS.items():
            self._fill(kind, self._seen.values[title])

    def _fill(self, kind: Kind[Any], values: Sequence[Any]) -> None:
        """Fill a table with new rows. The cursor stays on the row of the same broker, topic or group."""
        table, by = self._table(kind.title), self._sorted_by[kind.title]
        found = chosen(kind, values, wanted=self._wanted, sorted_by=by, with_system=self._with_system)
        shown = found[:ROWS_MAX]
        here = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value if table.row_count else None
        at_y = table.scroll_y
        table.clear()
        for value in shown:
            cells = (
                Text(column.text(value), justify="right" if column.is_number else "left") for column in kind.columns
            )
            table.add_row(*cells, key=kind.key(value))
        keys = [kind.key(value) for value in shown]
        table.move_cursor(row=keys.index(here) if here in keys else 0, animate=False, scroll=False)
        table.scroll_to(y=at_y, animate=False)
        number = f"{len(shown)} of {len(found)}" if len(found) > len(shown) else str(len(found))
        narrowed = f" with '{self._wanted}'" if self._wanted else ""
        table.border_title = Text(f"{number} {kind.title}{narrowed} by {by}").markup

    # --- keys ---

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key has an effect on the current screen. Most keys only have an effect on the screen with the
        tables."""
        return len(self.screen_stack) == 1 or action not in _OF_THE_TABLES

    def action_filter(self) -> None:
        """Show the input field for the filter of names."""
        field = self.query_one("#filter", Input)
        field.styles.display = "block"
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Apply the filter of names while the user types it."""
        self._wanted = event.value
        self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close the filter's input field and return to the tables."""
        event.input.styles.display = "none"
        self._table(GROUPS.title).focus()

    def action_clear(self) -> None:
        """Clear the filter of names, so that the tables show all rows."""
        field = self.query_one("#filter", Input)
        field.value = ""
        field.styles.display = "none"
        self._table(GROUPS.title).focus()

    def action_sort(self) -> None:
        """Sort the focused table by the next of its sortable columns."""
        title = self.focused.id if isinstance(self.focused, DataTable) else None
        if title in self.KINDS:
            orders = self.KINDS[title].orders
            self._sorted_by[title] = orders[(orders.index(self._sorted_by[title]) + 1) % len(orders)]
            self._draw()

    def action_pause(self) -> None:
        """Pause or resume the periodic refresh."""
        self._paused = not self._paused
        self._draw()

    def action_system(self) -> None:
        """Show or hide the system's topics and groups."""
        self._with_system = not self._with_system
        self._draw()

    def action_dark(self) -> None:
        """Switch the screen between dark and light colors."""
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"

    # --- details ---

    def action_alarms(self) -> None:
        """Show all alarms with their full texts."""

        async def parts() -> list[Part]:
            return alarm_parts(await self._view.overview())

        self.push_screen(DetailScreen(parts, self._refresh_s))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the details of the broker, topic or group in the selected row."""
        name = event.row_key.value
        if name is not None and event.data_table.id is not None:
            self.push_screen(DetailScreen(self._asking(event.data_table.id, name), self._refresh_s))

    def _asking(self, title: str, name: str) -> Callable[[], Awaitable[list[Part]]]:
        """Return a function that fetches the details of the broker, topic or group in a row."""
        view = self._view
        gone = [Part(f"{title.removesuffix('s')} {name} is there no more", (), ())]

        async def broker() -> list[Part]:
            broker_name, _, broker_id = name.rpartition(":")
            found = await view.broker(broker_name, int(broker_id))
            return gone if found is None else broker_parts(found)

        async def topic() -> list[Part]:
            found = await view.topic(name)
            return gone if found is None else topic_parts(found)

        async def group() -> list[Part]:
            found = await view.group(name)
            return gone if found is None else group_parts(found)

        return {BROKERS.title: broker, TOPICS.title: topic, GROUPS.title: group}[title]
