"""What foreign pages can make a browser send is refused before any page is asked."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the extra 'console' is not installed")

from starlette.datastructures import Headers

from flintmq.programs.console.guard import Guard, host_name, is_same_origin


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost:9880", "localhost"),
        ("LOCALHOST.", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]:9880", "::1"),
        ("[::1]", "::1"),
        ("a.example:80", "a.example"),
        ("", None),
        (":80", None),
        ("[::1", None),
        ("[::1]x", None),
        ("a:b", None),
        ("a:1:2", None),
    ],
)
def test_host_names_are_parsed_from_the_host_header(host: str, name: str | None) -> None:
    assert host_name(host) == name


@pytest.mark.parametrize(
    ("headers", "ours"),
    [
        ({"origin": "http://localhost:9880"}, True),
        ({"origin": "http://localhost:9880", "sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-origin"}, True),
        ({}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://localhost:9881"}, False),
        ({"origin": "https://localhost:9880"}, False),
        ({"origin": "http://localhost:9880", "sec-fetch-site": "same-site"}, False),
        ({"origin": "http://localhost:9880", "sec-fetch-site": "cross-site"}, False),
        ({"origin": "http://localhost:9880", "sec-fetch-site": "none"}, False),
        ({"origin": "http://evil.example"}, False),
    ],
)
def test_requests_from_other_origins_are_distinguished_from_same_origin_requests(
    headers: dict[str, str], ours: bool
) -> None:
    assert is_same_origin(Headers(headers), "http", "localhost:9880") is ours


def test_host_names_from_the_configuration_are_accepted() -> None:
    """Behind a proxy browsers use the proxy's name."""
    guard = Guard(app=lambda *_: None, host_names=["Console.Example."])  # type: ignore[arg-type,return-value]
    assert guard._is_ours("console.example:443")
    assert guard._is_ours("10.1.2.3:9880")
    assert not guard._is_ours("console.example.evil.example")
    assert not guard._is_ours("127.0.0.1.nip.example")
