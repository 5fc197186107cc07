"""Checks requests before they reach a processor: first by authenticators, then by plugins' hooks. The module also defines the
hooks."""

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
    """Plugins' hooks that a server calls for connections, requests and answers. Used only on the event loop's thread.

    The hooks have the roles of RocketMQ's ``ChannelEventListener`` and ``RPCHook``. Only the hooks in :attr:`before` may raise.
    The code that makes the tuples of hooks catches the exceptions of the other hooks.
    """

    connected: tuple[ChannelHook, ...] = ()
    """Hooks that are called with each accepted connection, except connections that exceed a limit and are closed at once."""
    closed: tuple[ChannelHook, ...] = ()
    """Hooks that are called with a connection when it has ended, if the hooks in :attr:`connected` were called with it."""
    failed: tuple[Callable[[ServerChannel, Exception], None], ...] = ()
    """Hooks that are called with a connection that ends because of a network error or wrong bytes, before the hooks in
    :attr:`closed`."""
    idle: tuple[ChannelHook, ...] = ()
    """Hooks that are called with a connection before it is closed because it is idle."""
    before: tuple[BeforeHook, ...] = ()
    """Hooks that are called with each request that the authenticators accepted. If a hook raises, the request is refused."""
    after: tuple[AfterHook, ...] = ()
    """Hooks that are called with each answer before it is sent, refusals included. A hook may change the answer if the answer
    stays valid."""

    @property
    def are_of_connections(self) -> bool:
        """Return whether plugins have a hook for connections that open, close, fail or are idle."""
        return bool(self.connected or self.closed or self.failed or self.idle)


class HookedChannel(ServerChannel):
    """A connection that calls the plugins' hooks :attr:`ServerHooks.after` with the server's answers.

    Servers without these hooks do not use this class.
    """

    def __init__(self, server: RemotingServer) -> None:
        super().__init__(server)
        self._after = server.hooks.after

    def respond(self, to: Request, answer: Response) -> None:
        """Call the plugins' hooks with an answer to a request, and send the answer. The hooks may change the answer."""
        wrong = wrong_response(answer)
        if wrong:
            raise TypeError(wrong)
        for hook in self._after:
            hook(to, answer)
        super().respond(to, answer)


AuthenticatorFailed = Callable[[Authenticator, Request, BaseException], None]
"""Function that is called if an authenticator raises an exception that is not a refusal. The request is then refused."""
HookFailed = Callable[[BeforeHook, Request, BaseException], None]
"""Function that is called if a hook raises an exception that is not a refusal. The request is then refused."""


class RequestGate:
    """Refuses requests that must not reach a processor. Used only on the event loop's thread.

    Args:
        clock: used to limit the lines per second in the audit log.
        declared: declarations of requests, keyed by request code.
        authenticators: authenticators that every request must pass.
        authenticator_failed: function of the type :data:`AuthenticatorFailed`.
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
        """Whether an authenticator or a hook must be called before each request."""

    def hook(self, hooks: Sequence[BeforeHook], failed: HookFailed) -> None:
        """Set the plugins' hooks that are called with each request that the authenticators accepted.

        Args:
            hooks: the hooks.
            failed: function called if a hook raises an exception that is not a refusal.
        """
        self._hooks = tuple((hook, failed) for hook in hooks)
        self.is_watched = bool(self._authenticators or self._hooks)

    def passing(self, requests: Sequence[Request]) -> list[Request]:
        """Return the requests that all authenticators and plugins' hooks accept. Answer the other requests with refusals."""
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
                # If an authenticator of a plugin raises an error, only the request that it checked is refused.
                # Requests that were read together with the refused request are still handled.
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
