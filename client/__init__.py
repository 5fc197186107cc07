"""The public names of the client library: producers, consumers and administration of RocketMQ 4.9 brokers.

::

    from flintmq.client import Message, Producer            # in an event loop
    from flintmq.client.sync import Message, Producer       # without one

docs/client.md is the guide. The names are those of :mod:`flintmq.remoting.client`, which imports the module of a name when the
name is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.remoting.client import *  # noqa: F403
else:
    from flintmq.remoting import client as _client

    __all__ = _client.__all__

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'flintmq.client' has no attribute {name!r}")
        return getattr(_client, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
