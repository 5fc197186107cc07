"""Creates the authenticators of a broker or a name server, and counts their failures for their plugins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

from flintmq.config import BrokerConfig
from flintmq.config.errors import ConfigError
from flintmq.core.errors import PluginError
from flintmq.core.kernel.failures import Part
from flintmq.core.kernel.hookspecs import AuthenticatorFactory, PluginContext
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.ports import Authenticator, ReloadingAuthenticator
from flintmq.core.kernel.ports.processor import Request
from flintmq.core.kernel.registry import Registered
from flintmq.programs.broker.loading import section_for
from flintmq.programs.broker.service import Timers

ACL: Final = "acl"
"""Name of the authenticator that the settings ``acl.enable`` and ``nameserver.acl_enable`` enable."""


class Authenticators:
    """The active authenticators of one server. For the loop thread only.

    Args:
        kernel: the registry of plugins, with the objects that they registered.
        config: the whole configuration, given to authenticators whose plugin has no section.
        names: the names of the authenticators, in the order in which they are asked.
        acl_key: the setting that enables the authenticator ``acl``.

    Raises:
        ConfigError: an authenticator refuses its settings, or ``acl_key`` is set and no plugin has the authenticator ``acl``.
        PluginError: a name is unknown, or a factory fails.
    """

    def __init__(self, kernel: Kernel, config: BrokerConfig, names: Iterable[str], *, acl_key: str) -> None:
        self._kernel = kernel
        self._registered: dict[int, Registered[AuthenticatorFactory[Any]]] = {}
        made: list[Authenticator] = []
        for name in names:
            try:
                entry = kernel.registries.authenticators.pick(name)
            except PluginError as error:
                if name != ACL:
                    raise
                text = f"access control ('{acl_key}') is missing: {error}; see 'disabled_plugins'"
                raise ConfigError(text, key=acl_key) from error
            context = kernel.context(entry, PluginContext)
            if section_for(kernel.registries, entry) is None:
                context = attrs.evolve(context, settings=config)
            one = kernel.make(entry, entry.value, context)
            made.append(one if entry.owner.built_in else _Noted(one, kernel.part(entry)))
            self._registered[id(made[-1])] = entry
        self.in_force = tuple(made)
        """The server's active authenticators, in the order in which a request is checked by them."""

    def start(self, timers: Timers) -> None:
        """Start to reload the files of those authenticators that support reloading."""
        for authenticator in self.in_force:
            if isinstance(authenticator, ReloadingAuthenticator):
                timers.every(authenticator.reload_interval_s, authenticator.reload, "account files")

    def failed(self, authenticator: Authenticator, request: Request, error: BaseException) -> None:
        """Count an unexpected error of an authenticator as a failure of the authenticator's plugin."""
        doing = f"request {request.code}: an authenticator failed"
        self._kernel.part(self._registered[id(authenticator)]).failed(error, doing, is_secret=True)


class _Noted:
    """Wraps an authenticator of a plugin to count its calls and failures. An authenticator is never switched off after
    failures, because the server would then accept requests without authentication."""

    def __init__(self, inner: Authenticator, part: Part) -> None:
        self._inner = inner
        self.authenticate = part.watched(inner.authenticate)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
