"""The ports of authenticators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import attrs


@attrs.frozen
class Caller:
    """The sender of a request and what it sent, for an authenticator to judge."""

    remote_host: str
    code: int
    ext_fields: Mapping[str, str]
    body: bytes


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
