"""Sessions of logged-in users, confirmations, and limits on failed logins. All are in memory and bounded.

A browser has a random id in a cookie. The token that the browser's forms must send is computed from the id and is not stored.
Only logged-in users have a session in memory. Users of a cluster without access control do not log in, and take no memory.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from flintmq.core.io.clock import Clock

if TYPE_CHECKING:
    from flintmq.programs.console.clusters import ClusterAccess

SESSIONS_MAX: Final = 256
"""Maximum number of sessions. A further login ends the session that was not used for the longest time."""
IDLE_S: Final = 30 * 60.0
LIFE_S: Final = 12 * 3600.0
CONFIRMATIONS_MAX: Final = 1_024
"""Maximum number of previews that wait for a confirmation. A further preview replaces the oldest preview."""
CONFIRM_S: Final = 900.0
ADDRESSES_MAX: Final = 1_024
FREE_TRIES: Final = 3
"""Number of failed logins from an address before a further login from that address must wait."""
WAIT_MAX_S: Final = 60.0
FORGET_S: Final = 900.0
TRIES_PER_MINUTE: Final = 120
"""Maximum number of failed logins from all addresses in a minute. Further logins must wait for the next minute."""


def new_id() -> str:
    """Return an unguessable id for a browser's cookie."""
    return secrets.token_urlsafe(32)


@attrs.define
class Session:
    """The session of a logged-in user, with the times of its start and of its last request."""

    access: ClusterAccess
    began_s: float
    used_s: float


class Sessions:
    """The sessions of all logged-in users. For the loop thread only.

    Args:
        clock: ends sessions after 30 minutes without a request, and after 12 hours.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._by_id: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def token(self, browser_id: str) -> str:
        """Return the token that forms from a browser with the given id must contain."""
        return hmac.new(self._key, browser_id.encode("utf-8", "replace"), hashlib.sha256).hexdigest()

    def token_fits(self, browser_id: str, token: str) -> bool:
        """Return whether a form's token belongs to the browser with the given id. The comparison takes constant time."""
        return hmac.compare_digest(self.token(browser_id).encode(), token.encode("utf-8", "replace"))

    def begin(self, access: ClusterAccess) -> str:
        """Start a session of an account, and return the id for the browser's cookie."""
        while len(self._by_id) >= SESSIONS_MAX:
            _, oldest = self._by_id.popitem(last=False)
            oldest.access.release()
        browser_id, now_s = new_id(), self._clock.monotonic_s()
        self._by_id[browser_id] = Session(access, now_s, now_s)
        access.hold()
        return browser_id

    def find(self, browser_id: str) -> Session | None:
        """Return the session of a browser and mark the session as used; None if the browser has no session."""
        self._forget_old()
        session = self._by_id.get(browser_id)
        if session is not None:
            session.used_s = self._clock.monotonic_s()
            self._by_id.move_to_end(browser_id)
        return session

    def end(self, browser_id: str) -> None:
        """End the session of a browser. Do nothing if the browser has no session."""
        session = self._by_id.pop(browser_id, None)
        if session is not None:
            session.access.release()

    def end_all_of(self, access: ClusterAccess) -> None:
        """End all sessions of one account."""
        for browser_id in [one for one, session in self._by_id.items() if session.access is access]:
            self.end(browser_id)

    def _forget_old(self) -> None:
        now_s = self._clock.monotonic_s()
        old = [
            one
            for one, session in self._by_id.items()
            if now_s - session.used_s >= IDLE_S or now_s - session.began_s >= LIFE_S
        ]
        for browser_id in old:
            self.end(browser_id)


@attrs.frozen
class Confirmation:
    """A preview of a change that its viewer may confirm once."""

    id: str
    fields: Mapping[str, str]
    """The form fields of the preview, keyed by name."""


class Confirmations:
    """Previews of changes that wait for a confirmation. A preview can be confirmed once, by the browser that shows the preview,
    with unchanged fields. For the loop thread only.

    Args:
        clock: drops previews after 15 minutes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: OrderedDict[str, tuple[float, str, str, Mapping[str, str]]] = OrderedDict()

    def begin(self, browser_id: str, path: str, fields: Mapping[str, str]) -> Confirmation:
        """Return a new confirmation for the form of a preview.

        Args:
            browser_id: the browser that shows the preview.
            path: the path to which the form is sent.
            fields: the preview's fields, which must come back unchanged.
        """
        while len(self._waiting) >= CONFIRMATIONS_MAX:
            self._waiting.popitem(last=False)
        confirmation = Confirmation(new_id(), dict(fields))
        self._waiting[confirmation.id] = (self._clock.monotonic_s(), browser_id, path, confirmation.fields)
        return confirmation

    def take(self, confirmation_id: str, browser_id: str, path: str, fields: Mapping[str, str]) -> bool:
        """Return whether a form confirms a preview. The preview cannot be confirmed a second time."""
        began_s, seen_by, shown_for, shown = self._waiting.get(confirmation_id, (float("-inf"), "", "", {}))
        if self._clock.monotonic_s() - began_s >= CONFIRM_S or (seen_by, shown_for) != (browser_id, path):
            return False
        if any(fields.get(name) != value for name, value in shown.items()):
            return False
        del self._waiting[confirmation_id]
        return True


@attrs.define
class _Failures:
    count: int
    last_s: float


class Throttle:
    """Slows down guessing of secret keys: after the third failed login, an address waits 1, 2, 4, … 60 s. For the loop thread
    only.

    Args:
        clock: measures the waits.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_address: OrderedDict[str, _Failures] = OrderedDict()
        self._minute = -1
        self._failed_this_minute = 0

    def wait_s(self, address: str) -> float:
        """Return the seconds that an address must wait before its next login; 0 if it need not wait."""
        now_s = self._clock.monotonic_s()
        if int(now_s // 60) == self._minute and self._failed_this_minute >= TRIES_PER_MINUTE:
            return 60 - now_s % 60
        failures = self._by_address.get(address)
        if failures is None or failures.count < FREE_TRIES:
            return 0.0
        wait_s = min(2.0 ** (failures.count - FREE_TRIES), WAIT_MAX_S)
        return max(0.0, failures.last_s + wait_s - now_s)

    def failed(self, address: str) -> None:
        """Record a failed login from an address."""
        now_s = self._clock.monotonic_s()
        if int(now_s // 60) != self._minute:
            self._minute, self._failed_this_minute = int(now_s // 60), 0
        self._failed_this_minute += 1
        failures = self._by_address.pop(address, None)
        if failures is None or now_s - failures.last_s >= FORGET_S:
            failures = _Failures(0, now_s)
        failures.count = min(failures.count + 1, 64)
        failures.last_s = now_s
        self._by_address[address] = failures
        while len(self._by_address) > ADDRESSES_MAX:
            self._by_address.popitem(last=False)

    def succeeded(self, address: str) -> None:
        """Forget the failed logins of an address."""
        self._by_address.pop(address, None)
