"""The ports of authenticators."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from flintmq.core.kernel.ports.access import Caller


class Authenticator(Protocol):
    """Lets a request pass or refuses it. Loop thread, before the processor."""

    def authenticate(self, caller: Caller) -> None:
        """Return to let a request pass, or raise ``RefusedError`` to refuse it."""
        ...


@runtime_checkable
class ReloadingAuthenticator(Authenticator, Protocol):
    """An authenticator that reads files which may change while the server runs. Loop thread."""

    @property
    def reload_interval_s(self) -> float:
        """The time between two calls of ``reload``, in seconds."""
        ...

    def reload(self) -> object:
        """Read what has changed. The returned value is ignored; an error is counted for the plugin."""
        ...
