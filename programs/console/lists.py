"""Divides long lists of the console into pages, after filtering and sorting them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

import attrs

from flintmq.programs.console.web import Visitor, to

T = TypeVar("T")

ROWS: Final = 100
"""Number of rows on a page of a list."""


@attrs.frozen
class Listed(Generic[T]):
    """One page of a long list, such as the list of topics."""

    rows: tuple[T, ...]
    total: int
    """Number of rows of the whole list that match the filter."""
    number: int
    """Number of the page within the list, from 1."""
    pages: int
    wanted: str
    order: str
    path: str
    more: Mapping[str, str]
    """Further query parameters in the addresses of the list's pages, keyed by name."""

    def link(self, **changed: object) -> str:
        """Return the address of the list with changed parameters, such as another page or order."""
        parameters = {"find": self.wanted, "order": self.order, "page": self.number, **self.more} | changed
        return to(self.path, **{name: value for name, value in parameters.items() if value not in ("", 1)})


def listed(
    visitor: Visitor,
    rows: Iterable[T],
    name: Callable[[T], str],
    orders: Mapping[str, Callable[[T], Any]],
    **more: str,
) -> Listed[T]:
    """Return one page of a list. Query parameters in the requested address filter the rows, sort them and choose the page.

    Args:
        visitor: the request, whose address may have ``find``, ``order`` and ``page``; invalid values are ignored.
        rows: all rows, sorted by name.
        name: returns a row's name, in which ``find`` is searched regardless of case.
        orders: functions that return a row's sort key, keyed by the value of ``order`` that chooses the function. The row with
            the largest sort key comes first.
        more: further query parameters, which the addresses of the list's other pages also have.
    """
    wanted = visitor.query("find")[:200]
    found = [row for row in rows if wanted.lower() in name(row).lower()]
    order = visitor.query("order")
    if order in orders:
        key = orders[order]
        found.sort(key=lambda row: (-(key(row) or 0), name(row)))
    else:
        order = ""
    pages = max(1, -(-len(found) // ROWS))
    text = visitor.query("page", "1")
    number = min(int(text), pages) if text.isascii() and text.isdecimal() and 0 < len(text) < 7 else 1
    number = max(1, number)
    return Listed(
        rows=tuple(found[(number - 1) * ROWS : number * ROWS]),
        total=len(found),
        number=number,
        pages=pages,
        wanted=wanted,
        order=order,
        path=visitor.request.url.path,
        more=more,
    )
