"""The port of authenticators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import attrs


@attrs.frozen
class Caller:
    """Who sends a request, as an authenticator sees it."""

    remote_host: str
    code: int
    ext_fields: Mapping[str, str]
    body: bytes


class Authenticator(Protocol):
    """Lets a request pass or refuses it. Loop thread, before the processor."""

    def authenticate(self, caller: Caller) -> None:
        """Raises ``RefusedError`` to refuse."""
        ...
