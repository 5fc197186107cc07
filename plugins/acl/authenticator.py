"""Authenticates a request and checks its rights: account, address, signature, replay, permissions.

The checks are made in this order: the rule of the request code, the access key, the address, the signature, replay,
administrator rights, and the permissions for topics and groups. An answer says nothing about rights unless the signature is
correct.

See docs/internals/protocol.md, Access control.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NoReturn

from flintmq.core.errors import RefusedError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports.access import Access, AccessFacts, AccessRule, Caller, TopicAt
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.acl.account import Account
from flintmq.plugins.acl.account_store import AccountStore
from flintmq.remoting.wire.codes import PUSHED, RequestCode
from flintmq.remoting.wire.header_codec import ACCESS_KEY, SIGNATURE, SIGNED_AT
from flintmq.remoting.wire.refusal import unsupported
from flintmq.remoting.wire.signature import verify

_KNOWN_CODES: Final = frozenset(map(int, RequestCode))


def _unknown_record(_commit_log_offset_bytes: int) -> str | None:
    return None


class AclAuthenticator:
    """The authenticator ``acl``, which checks each request. Used only on the event loop's thread.

    Args:
        store: the accounts.
        trace_topic: the topic of message traces (``topics.trace_topic_name``).
        extra: rules from the configuration, keyed by request code. These rules replace the declared rules of the same request
            codes.
        clock: the clock to which the times of requests are compared.
        strict: whether lists of addresses have the same effect as in RocketMQ: a request from a listed address needs neither a
            signature nor permissions. A request from an address in an account's own list must name the account. If false, the
            lists only restrict access.
        replay_window_ms: the largest difference in ms between a request's time and now; 0 switches off the replay check.
        reload_interval_s: the interval in seconds between checks of the account files.
    """

    def __init__(
        self,
        store: AccountStore,
        clock: Clock,
        *,
        trace_topic: str,
        extra: Mapping[int, AccessRule],
        strict: bool,
        replay_window_ms: int = 0,
        reload_interval_s: float = 5.0,
    ) -> None:
        self.store = store
        self.topic_at: TopicAt = _unknown_record
        """Function that returns the topic of a record in the commit log. The broker sets the function after it has opened its
        store."""
        self.refused = 0
        """Number of requests that access control has refused since the start."""
        self.reload_interval_s = reload_interval_s
        self._trace_topic = trace_topic
        self._extra = extra
        self._clock = clock
        self._strict = strict
        self._window = ReplayWindow(replay_window_ms) if replay_window_ms else None

    def reload(self) -> bool:
        """Read changed account files again, and return whether the accounts were replaced."""
        return self.store.reload()

    def authenticate(self, caller: Caller) -> None:
        """Check a request. Raises ``RefusedError`` with code 1, or with code 3 for an unsupported request. The text names the
        failed check."""
        try:
            self._check(caller)
        except RefusedError:
            self.refused += 1
            raise

    def _check(self, caller: Caller) -> None:
        rule = self._extra.get(caller.code, caller.rule)
        if rule is not None and rule.access is Access.PUBLIC:
            return
        table = self.store.table
        if self._strict and table.global_white.matches(caller.remote_host):
            return
        access_key = caller.ext_fields.get(ACCESS_KEY, "")
        if not access_key:
            _refuse("the request has no access key", "acl.unsigned")
        account = table.accounts.get(access_key)
        if account is None:
            _refuse(f"No acl config for {access_key[:80]!a}", "acl.unknown")
        if self._strict:
            if account.white.matches(caller.remote_host):
                return
        elif not all(white.matches(caller.remote_host) for white in (table.global_white, account.white) if white):
            _refuse(
                f"{access_key} may not come from {caller.remote_host}",
                "acl.address",
                "acl.global_white_remote_addresses, or the account's whiteRemoteAddress",
            )
        if SIGNATURE not in caller.ext_fields or not verify(account.secret, caller.ext_fields, caller.body):
            _refuse(f"Check signature failed for accessKey={access_key}", "acl.signature")
        if self._window is not None:
            problem = self._window.problem(caller.ext_fields, self._clock.now_ms())
            if problem is not None:
                _refuse(problem, "acl.replayed", "acl.replay_window_ms")
        self._check_rule(rule, caller, account)

    def _check_rule(self, rule: AccessRule | None, caller: Caller, account: Account) -> None:
        if rule is None:
            if caller.code in PUSHED:
                _refuse(f"request code {caller.code} is sent by brokers, not to them", "acl.pushed")
            refusal = unsupported(caller.code)
            if caller.code in _KNOWN_CODES:
                raise refusal
            raise RefusedError(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, str(refusal), reason="acl.unclassified", key="acl.extra_codes"
            )
        if account.admin:
            return
        if rule.access is Access.ADMIN:
            _refuse(
                f"Need admin permission for request code={caller.code}, but accessKey={account.access_key} is not",
                "acl.admin",
            )
        if rule.needs is None:
            return
        lacking = account.first_lacking(rule.needs(caller, AccessFacts(self._trace_topic, self.topic_at)))
        if lacking is not None:
            _refuse(f"No default permission for {lacking}"[:300], "acl.permission", "the account's permissions")


def _refuse(message: str, reason: str, key: str = "") -> NoReturn:
    raise RefusedError(ResponseCode.SYSTEM_ERROR, f"AclException: {message}", reason=reason, key=key)


class ReplayWindow:
    """Finds requests whose time differs too much from now, and repeated requests, by their signatures. Used only on the event
    loop's thread.

    Args:
        window_ms: the largest difference in ms between a request's time and now, in both directions. Signatures are kept for
            twice this time.
    """

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._seen: set[str] = set()
        self._order: deque[tuple[int, str]] = deque()

    def problem(self, ext_fields: Mapping[str, str], now_ms: int) -> str | None:
        """Return the reason why a correctly signed request must be refused. If the request's time is accepted and the signature
        is new, record the signature and return None."""
        written, _, _nonce = ext_fields.get(SIGNED_AT, "").partition("-")
        if not written.isdecimal() or len(written) > 15:
            return f"the request is not dated ({SIGNED_AT})"
        off_ms = abs(now_ms - int(written))
        if off_ms > self._window_ms:
            return f"the request's time differs from the server's by {off_ms} ms, more than {self._window_ms} ms"
        while self._order and self._order[0][0] < now_ms:
            self._seen.discard(self._order.popleft()[1])
        signature = ext_fields[SIGNATURE]
        if signature in self._seen:
            return "the request was made before"
        self._seen.add(signature)
        self._order.append((now_ms + 2 * self._window_ms, signature))
        return None
