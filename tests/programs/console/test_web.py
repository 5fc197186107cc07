"""Addresses that the pages make and take lead to the console, whatever is in them."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the extra 'console' is not installed")

from flintmq.programs.console.lists import Listed
from flintmq.programs.console.web import safe_next, to


@pytest.mark.parametrize("text", ["//x", "/\\x", "\\/x", "http://x", "/a\r\nb", "/a\\b", "", "x", "/" + "x" * 2_000])
def test_redirects_to_other_hosts_are_refused(text: str) -> None:
    assert safe_next(text) == "/"


def test_redirects_to_pages_of_the_console_are_accepted() -> None:
    assert safe_next("/topic?name=%25RETRY%25g") == "/topic?name=%25RETRY%25g"


def test_names_in_links_are_percent_encoded() -> None:
    assert to("/topic", name="%DLQ%a&b=<c>") == "/topic?name=%25DLQ%25a%26b%3D%3Cc%3E"
    assert to("/topics") == "/topics"


def test_links_to_other_pages_of_a_filtered_list_keep_the_filter() -> None:
    made: Listed[int] = Listed((), 0, 2, 3, "a b", "lag", "/topics", {"kind": "retry"})
    assert made.link(page=3) == "/topics?find=a+b&order=lag&page=3&kind=retry"
    assert made.link(order="", page=1) == "/topics?find=a+b&kind=retry"
