"""The module that the entry point names: hooks that register the class ``Watch``, which counts and refuses requests.

Other hooks register the plugin's configuration section and the command ``request-counts``.
"""

from __future__ import annotations

import weakref
from typing import Any

import attrs

from flintmq.core.kernel.hookspecs import (
    ApiContext,
    RegisterCommand,
    RegisterConfigSection,
    RegisterDefaultProcessor,
    RegisterProcessor,
    RegisterServerPart,
    hookimpl,
)
from flintmq.protocol import declared_by
from flintmq_request_watch.command import request_counts
from flintmq_request_watch.watch import Watch


@attrs.frozen(kw_only=True)
class WatchSection:
    """The section ``request_watch`` of the configuration."""

    refused_codes: tuple[int, ...] = ()
    """Request codes that are refused for every client."""


_watches: weakref.WeakKeyDictionary[Any, Watch] = weakref.WeakKeyDictionary()


def watch_of(context: ApiContext[WatchSection]) -> Watch:
    """Return the :class:`Watch` object of a broker or name server. All hooks register this one object."""
    if context.api not in _watches:
        _watches[context.api] = Watch(context.settings.refused_codes)
    return _watches[context.api]


@hookimpl
def flintmq_config_sections(register: RegisterConfigSection) -> None:
    register("request_watch", WatchSection)


@hookimpl
def flintmq_default_processors(register: RegisterDefaultProcessor) -> None:
    register("watch", watch_of, at="both")


@hookimpl
def flintmq_cli_commands(register: RegisterCommand) -> None:
    register("request-counts", request_counts)


@hookimpl
def flintmq_connection_listeners(register: RegisterServerPart) -> None:
    register("watch", watch_of, at="both")


@hookimpl
def flintmq_rpc_hooks(register: RegisterServerPart) -> None:
    register("watch", watch_of, at="both")


@hookimpl
def flintmq_request_processors(register: RegisterProcessor) -> None:
    register("watch", declared_by(Watch), watch_of, at="both")
