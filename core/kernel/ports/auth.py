"""The interfaces that authenticators implement."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from flintmq.core.kernel.ports.access import Caller


class Authenticator(Protocol):
    """An authenticator, which lets a request pass or refuses the request. Called on the loop thread, before the request's
    processor.
    """

    def authenticate(self, caller: Caller) -> None:
        """Return None to let a request pass, or raise ``RefusedError`` to refuse the request."""
        ...


@runtime_checkable
class ReloadingAuthenticator(Authenticator, Protocol):
    """An authenticator that reads files which may change while the server runs. Used only on the event loop's thread."""

    @property
    def reload_interval_s(self) -> float:
        """The time between two calls of the authenticator's ``reload``, in seconds."""
        ...

    def reload(self) -> object:
        """Read the authenticator's files if they have changed.

        The returned value is ignored; an error is counted for the plugin.
        """
        ...
