"""Gives a server what plugins registered for it as a whole: a default processor, connection listeners, RPC hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from flintmq.core.kernel.blame import PLUGIN_FAULTS
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.plugin_shapes import DEFAULT_PROCESSOR, drop, shown
from flintmq.core.kernel.ports.processor import Request, Response
from flintmq.core.kernel.registry import Registered, ServerPart
from flintmq.remoting.server.pool import Pool
from flintmq.remoting.server.processor_shape import check_handler, wrong_response
from flintmq.remoting.server.server import RemotingServer
from flintmq.remoting.server.server_hooks import AfterHook, BeforeHook, ServerHooks

_EVENTS = {
    "connected": "on_channel_connect",
    "closed": "on_channel_close",
    "failed": "on_channel_exception",
    "idle": "on_channel_idle",
}


class ServerParts:
    """What plugins registered for one server. Made once, before it listens; loop thread.

    Args:
        kernel: the plugins.
        at: ``broker`` or ``nameserver``.
        owner: the broker or the name server, which factories are given.

    Raises:
        ConfigError, PluginError: a plugin's fault; names it.
    """

    def __init__(self, kernel: Kernel, at: str, owner: object) -> None:
        self._kernel = kernel
        self.default = kernel.registries.default_processor_of(at)
        """Answers the codes that no processor answers; None where there is none."""
        self._handler: Any = None
        if self.default is not None:
            made = self._made(self.default, owner)
            where = DEFAULT_PROCESSOR.where(self.default.owner, self.default.name)
            self._handler = check_handler(where, made, "handle")
        listeners = [(entry, self._made(entry, owner)) for entry in kernel.registries.connection_listeners_of(at)]
        hooks = [(entry, self._made(entry, owner)) for entry in kernel.registries.rpc_hooks_of(at)]
        by_event = {
            event: tuple(self._counted(entry, made, method) for entry, made in listeners if hasattr(made, method))
            for event, method in _EVENTS.items()
        }
        self._of_hook: dict[int, Registered[ServerPart]] = {}
        before: list[BeforeHook] = []
        for entry, made in hooks:
            if hasattr(made, "do_before_request"):
                before.append(made.do_before_request)
                self._of_hook[id(before[-1])] = entry
        after = tuple(self._after(entry, made) for entry, made in hooks if hasattr(made, "do_after_response"))
        self.hooks = ServerHooks(**by_event, before=tuple(before), after=after)

    def attach(self, server: RemotingServer, pool: Callable[[str, int], Pool]) -> None:
        """Add everything to a server that does not listen yet.

        Args:
            pool: the bounded queue of a name and a number of threads.
        """
        server.hook(self.hooks, self._hook_failed)
        if self.default is not None:
            server.table.register_default(self._handler, pool(self.default.value.pool, self.default.value.threads))

    def _made(self, entry: Registered[ServerPart], owner: object) -> Any:
        return self._kernel.guarded(entry, entry.value.factory)(owner)

    def _counted(self, entry: Registered[ServerPart], made: Any, method: str) -> Callable[..., None]:
        """Return a function that calls a method of a listener and counts what it raises for its plugin."""
        call: Callable[..., object] = getattr(made, method)
        kernel = self._kernel

        def called(*arguments: object) -> None:
            try:
                if inspect.isawaitable(returned := call(*arguments)):
                    drop(returned)
                    raise TypeError(
                        f"expected a plain method; found {shown(returned)} returned, which is never awaited"
                    )
            except PLUGIN_FAULTS as error:
                kernel.blame(entry, method, error)

        return called

    def _after(self, entry: Registered[ServerPart], made: Any) -> AfterHook:
        """Return a function that calls a hook. When it fails, or leaves what cannot be sent, the answer is restored."""
        call: Callable[[Request, Response], object] = made.do_after_response
        kernel = self._kernel

        def called(request: Request, response: Response) -> None:
            code, remark, body = response.code, response.remark, response.body
            fields = None if response.ext_fields is None else dict(response.ext_fields)
            try:
                call(request, response)
                if wrong := wrong_response(response):
                    raise TypeError(wrong)
            except PLUGIN_FAULTS as error:
                response.code, response.remark, response.ext_fields, response.body = code, remark, fields, body
                kernel.blame(entry, "do_after_response", error)

        return called

    def _hook_failed(self, hook: BeforeHook, _request: Request, error: BaseException) -> None:
        self._kernel.blame(self._of_hook[id(hook)], "do_before_request", error)
