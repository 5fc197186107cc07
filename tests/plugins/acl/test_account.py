"""What an account may do is decided here for every request."""

from __future__ import annotations

import contextlib
import ipaddress
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.config.errors import ConfigError
from flintmq.config.secret import Secret
from flintmq.config.sections.models import AclAccount
from flintmq.core.kernel.ports.access import Need, Permission
from flintmq.plugins.acl.account import (
    INTERNAL_TOPICS,
    Account,
    address_segments,
    parse_addresses,
    parse_permission,
    parse_permissions,
)

BYTE = st.integers(0, 255)
GROUP = st.integers(0, 0xFFFF)


def account(**fields: object) -> Account:
    """An account with a key and a secret."""
    return Account.of(AclAccount(accessKey="orders-service", secretKey=Secret("a secret of ten"), **fields))  # type: ignore[arg-type]


def publish(topic: str) -> Need:
    return Need(topic, Permission.PUB)


def test_permissions_for_single_topics_and_groups_override_the_default_permissions_of_an_account() -> None:
    """Also where they take away what the default gives."""
    found = account(defaultTopicPerm="ANY", topicPerms=("Bills=DENY",), groupPerms=("billing=SUB",))
    subscribed = Need("billing", Permission.SUB, is_group=True)
    assert found.first_lacking([publish("Orders"), subscribed]) is None
    assert found.first_lacking([publish("Orders"), publish("Bills")]) == publish("Bills")
    other = Need("other", Permission.SUB, is_group=True)
    assert found.first_lacking([subscribed, other]) == other, "groups are denied by default"


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_a_default_permission_does_not_cover_the_brokers_internal_topics(topic: str) -> None:
    """Delayed and half messages of every topic lie there; an account needs their names."""
    assert account(defaultTopicPerm="ANY").first_lacking([publish(topic)]) == publish(topic)
    assert account(topicPerms=(f"{topic}=PUB",)).first_lacking([publish(topic)]) is None


def test_an_administrator_has_every_permission() -> None:
    """RocketMQ's rule."""
    assert account(admin=True, defaultTopicPerm="DENY").first_lacking([publish("Orders")]) is None


def test_an_error_in_an_account_names_the_account_but_no_secret() -> None:
    """A file may have hundreds of accounts, and its errors go to logs."""
    with pytest.raises(ConfigError, match="account orders-service: a permission is one of") as found:
        account(defaultTopicPerm="EVERYTHING")
    assert "a secret" not in str(found.value)
    assert "a secret" not in repr(account())


@pytest.mark.parametrize(
    ("text", "found"),
    [(None, Permission.DENY), (" ", Permission.DENY), ("DENY", Permission.DENY), (" PUB ", Permission.PUB),
     ("SUB", Permission.SUB), ("PUB|SUB", Permission.ANY), ("SUB|PUB", Permission.ANY), ("ANY", Permission.ANY)],
)  # fmt: skip
def test_permission_words_of_rocketmq_accounts_are_parsed(text: str | None, found: Permission) -> None:
    """RocketMQ denies where it finds nothing."""
    assert parse_permission(text) is found


@pytest.mark.parametrize("text", ["pub", "ALL", "PUB,SUB", "PUB|PUB"])
def test_an_unknown_permission_word_is_refused(text: str) -> None:
    """RocketMQ takes it for DENY in silence; here the operator learns of the mistake."""
    with pytest.raises(ConfigError, match="a permission is one of"):
        parse_permission(text)


def test_the_topic_before_and_the_permission_after_the_equals_sign_of_an_entry_are_parsed() -> None:
    """As account files write them."""
    assert parse_permissions(["Orders=PUB", " Bills = SUB "]) == {"Orders": Permission.PUB, "Bills": Permission.SUB}


@pytest.mark.parametrize(
    ("entries", "reason"), [(["Orders"], "name=PERM"), (["=PUB"], "name=PERM"), (["a=PUB", "a=SUB"], "twice")]
)
def test_a_malformed_permission_entry_is_refused(entries: list[str], reason: str) -> None:
    """Of two entries for one name nobody could tell which counts."""
    with pytest.raises(ConfigError, match=reason):
        parse_permissions(entries)


@st.composite
def segment(draw: st.DrawFn, maximum: int, base: int) -> tuple[str, set[int] | range]:
    """A segment's text and the numbers it stands for."""

    def text(number: int) -> str:
        return format(number, "x") if base == 16 else str(number)

    kind = draw(st.sampled_from(["number", "any", "range", "list"]))
    low, high = sorted((draw(st.integers(0, maximum)), draw(st.integers(0, maximum))))
    if kind == "any":
        return "*", range(maximum + 1)
    if kind == "range":
        return f"{text(low)}-{text(high)}", range(low, high + 1)
    if kind == "list":
        others = draw(st.lists(st.integers(0, maximum), max_size=3))
        parts = [f"{text(low)}-{text(high)}", *map(text, others)]
        return "{" + ",".join(parts) + "}", {*range(low, high + 1), *others}
    return text(low), {low}


@given(st.lists(segment(255, 10), min_size=4, max_size=4), st.lists(BYTE, min_size=4, max_size=4))
def test_an_ipv4_pattern_matches_an_address_if_and_only_if_every_segment_matches(
    segments: list[tuple[str, set[int] | range]], address: list[int]
) -> None:
    """`*`, ranges and lists in any segment; the address is inside exactly when each of its numbers is."""
    patterns = parse_addresses(".".join(text for text, _ in segments))
    inside = [min(found) for _, found in segments]
    expected = all(number in found for number, (_, found) in zip(address, segments, strict=True))
    assert patterns.matches(".".join(map(str, address))) is expected
    assert patterns.matches(".".join(map(str, inside)))
    assert patterns.matches("::ffff:" + ".".join(map(str, inside))), "a wrapped IPv4 address is that address"


@given(st.lists(segment(0xFFFF, 16), min_size=8, max_size=8), st.lists(GROUP, min_size=8, max_size=8))
def test_an_ipv6_pattern_matches_an_address_if_and_only_if_every_segment_matches(
    segments: list[tuple[str, set[int] | range]], address: list[int]
) -> None:
    """The same with eight groups of hexadecimal digits."""
    patterns = parse_addresses(":".join(text for text, _ in segments))
    inside = ipaddress.IPv6Address(b"".join(min(found).to_bytes(2, "big") for _, found in segments))
    other = ipaddress.IPv6Address(b"".join(number.to_bytes(2, "big") for number in address))
    expected = all(number in found for number, (_, found) in zip(address, segments, strict=True))
    if other.ipv4_mapped is None:
        assert patterns.matches(str(other)) is expected
    if inside.ipv4_mapped is None:
        assert patterns.matches(inside.exploded)
        assert patterns.matches(f"{inside.compressed}%eth0")


@given(st.ip_addresses(v=6), st.ip_addresses(v=4))
def test_an_address_pattern_without_wildcards_matches_its_own_address(
    six: ipaddress.IPv6Address, four: ipaddress.IPv4Address
) -> None:
    """`::` stands for as many zeros as are missing."""
    patterns = parse_addresses(f"{four}, {six}")
    assert patterns.matches(str(four))
    if six.ipv4_mapped is None:
        assert patterns.matches(six.exploded)


@given(st.one_of(st.ip_addresses().map(str), st.text(max_size=20)))
def test_a_star_pattern_matches_every_host_and_an_empty_pattern_matches_no_host(host: str) -> None:
    """The two ends; a peer without an address (a Unix socket) only fits the star."""
    assert parse_addresses("*").matches(host)
    assert not parse_addresses("").matches(host)
    if not address_segments(host):
        assert not parse_addresses("0-255.*.*.1").matches(host)


@pytest.mark.parametrize(
    "text",
    ["10.0.0", "10.0.0.256", "10.0.0.9-1", "10.0.0.{}", "10.0.0.{1", "10..0.1", "1.2.3.4.5", "::1::2", "1:2:3", "g::",
     "a.b.c.d", "10.0.0.-", "1:2:3:4:5:6:7:8:9", "10.0.0.*.", "10.0.0.１", "** ", "10.0. 0.1"],
)  # fmt: skip
def test_a_malformed_address_pattern_is_refused(text: str) -> None:
    """A typing error must not become a list that nobody, or everybody, is on."""
    with pytest.raises(ConfigError, match="pattern of addresses"):
        parse_addresses(text)


@given(st.text(alphabet="0123456789abcdef.:*-{},; ", max_size=30))
def test_any_text_is_parsed_as_an_address_pattern_or_raises_config_error(text: str) -> None:
    """The text comes over the wire too (53): no other exception may come out."""
    with contextlib.suppress(ConfigError):
        parse_addresses(text).matches("10.0.0.1")


def test_address_lists_are_parsed_in_linear_time_and_limited_to_1000_patterns() -> None:
    """Whoever may write a list must not stop the broker with it: time grows with its length, and its length is bounded."""
    begin_s = time.thread_time()
    assert not parse_addresses("," * 60_000)
    assert time.thread_time() - begin_s < 0.5
    assert len(parse_addresses("10.0.0.1," * 1_000).patterns) == 1_000
    with pytest.raises(ConfigError, match="at most 1000"):
        parse_addresses("10.0.0.1," * 1_001)
    assert parse_addresses("10.0.0.{1,2};10.0.0.9").matches("10.0.0.9")
    for broken in ("10.0.0.{1,2", "10.0.0.1,2}", "{,}"):
        with pytest.raises(ConfigError):
            parse_addresses(broken)
