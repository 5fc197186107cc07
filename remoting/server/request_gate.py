"""What plugins want to be called with, and what a request must pass before its processor: authenticators, then hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from flintmq.core.errors import RefusedError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.failures import PLUGIN_FAULTS
from flintmq.core.kernel.plugin_shapes import drop, shown
from flintmq.core.kernel.ports import Authenticator, Caller
from flintmq.core.kernel.ports.processor import Request, RequestDeclaration, Response
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.server.audit import RefusalAudit
from flintmq.remoting.server.channel import ServerChannel
from flintmq.remoting.server.request_table import wrong_response
from flintmq.remoting.wire.refusal import hook_failed

if TYPE_CHECKING:
    from flintmq.remoting.server.server import RemotingServer


ChannelHook = Callable[[ServerChannel], None]
BeforeHook = Callable[[Request], object]
AfterHook = Callable[[Request, Response], None]


class ServerHooks(msgspec.Struct, frozen=True):
    """RocketMQ's ``ChannelEventListener`` and the two sides of its ``RPCHook``. Loop thread.

    Only those of :attr:`before` may raise; the maker of the tuples catches what the others raise.
    """

    connected: tuple[ChannelHook, ...] = ()
    """Called with each connection that is accepted; not with one that is closed because there are too many."""
    closed: tuple[ChannelHook, ...] = ()
    """Called once with each of those when it has ended, for whatever reason."""
    failed: tuple[Callable[[ServerChannel, Exception], None], ...] = ()
    """Called with a connection that ends because of an error of the network or of its bytes. ``closed`` follows."""
    idle: tuple[ChannelHook, ...] = ()
    """Called with a connection that has been silent for too long, before it is closed."""
    before: tuple[BeforeHook, ...] = ()
    """Called with each request that the authenticators let pass; what one raises refuses the request."""
    after: tuple[AfterHook, ...] = ()
    """Called with each answer before it is sent, refusals included; may change it, but leaves one that can be sent."""

    @property
    def are_of_connections(self) -> bool:
        """Return whether any of them is called with connections."""
        return bool(self.connected or self.closed or self.failed or self.idle)


class HookedChannel(ServerChannel):
    """A connection whose answers pass :attr:`ServerHooks.after`. Made only where there are such hooks."""

    def __init__(self, server: RemotingServer) -> None:
        super().__init__(server)
        self._after = server.hooks.after

    def respond(self, to: Request, answer: Response) -> None:
        """Answer a request after the hooks have seen, and perhaps changed, the answer."""
        wrong = wrong_response(answer)
        if wrong:
            raise TypeError(wrong)
        for hook in self._after:
            hook(to, answer)
        super().respond(to, answer)


AuthenticatorFailed = Callable[[Authenticator, Request, BaseException], None]
"""Called when an authenticator raised something that is not a refusal; the request is refused."""
HookFailed = Callable[[BeforeHook, Request, BaseException], None]
"""Called when a hook raised something that is not a refusal; the request is refused."""


class RequestGate:
    """Refuses requests that must not reach a processor. Loop thread.

    Args:
        clock: bounds the lines of the audit log.
        declared: what is declared of each code.
        authenticators: every request must pass all of them.
        authenticator_failed: see :data:`AuthenticatorFailed`.
    """

    def __init__(
        self,
        clock: Clock,
        declared: Mapping[int, RequestDeclaration],
        authenticators: Sequence[Authenticator],
        authenticator_failed: AuthenticatorFailed,
    ) -> None:
        self._declared = declared
        self._authenticators = tuple(authenticators)
        self._authenticator_failed = authenticator_failed
        self._audit = RefusalAudit(clock)
        self._hooks: tuple[tuple[BeforeHook, HookFailed], ...] = ()
        self.is_watched = bool(self._authenticators)
        """Whether there is anything that a request must pass."""

    def hook(self, hooks: Sequence[BeforeHook], failed: HookFailed) -> None:
        """Call hooks with each request that the authenticators let pass."""
        self._hooks = tuple((hook, failed) for hook in hooks)
        self.is_watched = bool(self._authenticators or self._hooks)

    def passing(self, requests: Sequence[Request]) -> list[Request]:
        """Return the requests that pass; the others are refused."""
        admitted = [one for one in requests if self._lets_pass(one)] if self._authenticators else list(requests)
        return [one for one in admitted if self._hooks_let_pass(one)] if self._hooks else admitted

    def _lets_pass(self, request: Request) -> bool:
        declared = self._declared.get(request.code)
        rule = declared.needs if declared is not None else None
        caller = Caller(request.channel.remote_host, request.code, request.ext_fields or {}, request.body, rule)
        for authenticator in self._authenticators:
            try:
                authenticate: Callable[[Caller], object] = authenticator.authenticate
                _check_nothing_returned(authenticate(caller))
            except RefusedError as error:
                if declared is not None and declared.audited:
                    self._audit(request, error)
                request.channel.refuse(request, error)
                return False
            except PLUGIN_FAULTS as error:
                # A plugin's fault must not admit a request, nor drop the other requests of this read.
                self._authenticator_failed(authenticator, request, error)
                refusal = RefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    "the sender of this request cannot be established",
                    reason="authenticator.failed",
                )
                request.channel.refuse(request, refusal)
                return False
        return True

    def _hooks_let_pass(self, request: Request) -> bool:
        for hook, failed in self._hooks:
            try:
                _check_nothing_returned(hook(request))
            except RefusedError as error:
                request.channel.refuse(request, error)
                return False
            except PLUGIN_FAULTS as error:
                failed(hook, request, error)
                request.channel.refuse(request, hook_failed(error))
                return False
        return True


def _check_nothing_returned(returned: object) -> None:
    if returned is not None:
        drop(returned)
        raise TypeError(f"expected None, or a RefusedError to be raised; found {shown(returned)} returned")
