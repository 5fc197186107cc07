"""Sessions and failures are bounded in number and time: whoever reaches the console could make as many as they like."""

from __future__ import annotations

from typing import Any, cast

from flintmq.programs.console import sessions
from flintmq.programs.console.sessions import Confirmations, Sessions, Throttle
from flintmq.testing.clock import ManualClock


class Access:
    """Counts who holds it."""

    def __init__(self) -> None:
        self.holders = 0

    def hold(self) -> None:
        self.holders += 1

    def release(self) -> None:
        self.holders -= 1


def begun(table: Sessions, access: Access) -> str:
    return table.begin(cast(Any, access))


def test_the_oldest_preview_of_a_change_is_discarded_if_too_many_previews_wait_for_confirmation() -> None:
    """The oldest one makes room; the newest can be confirmed."""
    table = Confirmations(ManualClock())
    first, *_, last = (table.begin("b", "/p", {"n": str(n)}) for n in range(sessions.CONFIRMATIONS_MAX + 1))
    assert not table.take(first.id, "b", "/p", {"n": "0"})
    assert not table.take(last.id, "b", "/p", {})
    assert table.take(last.id, "b", "/p", {"n": str(sessions.CONFIRMATIONS_MAX), "chosen": "on the page"})
    assert not table.take(last.id, "b", "/p", {"n": str(sessions.CONFIRMATIONS_MAX)})


def test_a_session_ends_if_it_is_idle_too_long_or_reaches_its_maximum_age() -> None:
    """A browser that was left open is logged out, and one that asks every few seconds too, after half a day."""
    clock, access = ManualClock(), Access()
    table = Sessions(clock)
    idle, busy = begun(table, access), begun(table, access)
    for _ in range(int(sessions.LIFE_S / 600) - 1):
        clock.advance_ms(600_000)
        assert table.find(busy) is not None
    assert table.find(idle) is None
    clock.advance_ms(600_000)
    assert table.find(busy) is None
    assert (len(table), access.holders) == (0, 0)


def test_a_new_session_at_the_session_limit_ends_the_least_recently_used_session() -> None:
    table, access = Sessions(ManualClock()), Access()
    first, second = begun(table, access), begun(table, access)
    assert table.find(first) is not None
    for _ in range(sessions.SESSIONS_MAX - 1):
        begun(table, access)
    assert len(table) == access.holders == sessions.SESSIONS_MAX
    assert table.find(second) is None
    assert table.find(first) is not None


def test_ending_all_sessions_of_an_account_keeps_the_sessions_of_other_accounts() -> None:
    """Its secret was changed, or it is gone: no browser goes on with the old one."""
    table, access, other = Sessions(ManualClock()), Access(), Access()
    ids = [begun(table, access), begun(table, access), begun(table, other)]
    table.end_all_of(cast(Any, access))
    table.end("never begun")
    assert [table.find(one) is not None for one in ids] == [False, False, True]
    assert (access.holders, other.holders) == (0, 1)


def test_a_form_token_is_valid_only_for_the_browser_it_was_made_for() -> None:
    """And only in this process: a token of before a restart is refused."""
    table = Sessions(ManualClock())
    token = table.token("one")
    assert table.token_fits("one", token)
    assert not table.token_fits("two", token)
    assert not table.token_fits("one", "")
    assert not table.token_fits("one", "ü\udce4")
    assert not Sessions(ManualClock()).token_fits("one", token)


def test_repeated_failed_logins_from_an_address_lengthen_the_wait_before_its_next_login() -> None:
    clock = ManualClock()
    throttle = Throttle(clock)
    waits = []
    for _ in range(12):
        waits.append(throttle.wait_s("a"))
        clock.advance_ms(round(waits[-1] * 1000))
        assert throttle.wait_s("a") == 0
        throttle.failed("a")
    assert waits == [0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert throttle.wait_s("b") == 0
    throttle.succeeded("a")
    assert throttle.wait_s("a") == 0


def test_the_number_of_failed_logins_per_minute_is_limited_across_all_addresses() -> None:
    """In memory, and for all of them together: a botnet has more addresses than anybody counts."""
    clock = ManualClock()
    throttle = Throttle(clock)
    for number in range(sessions.TRIES_PER_MINUTE):
        assert throttle.wait_s(f"10.0.0.{number}") == 0
        throttle.failed(f"10.0.0.{number}")
    assert 0 < throttle.wait_s("192.0.2.1") <= 60
    clock.advance_ms(60_000)
    assert throttle.wait_s("192.0.2.1") == 0
    for number in range(2 * sessions.ADDRESSES_MAX):
        throttle.failed(f"many-{number}")
    assert len(throttle._by_address) == sessions.ADDRESSES_MAX
