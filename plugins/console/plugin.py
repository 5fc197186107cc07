"""Registers the service ``console``, which starts a console with the broker if ``console.enable`` is true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.config.errors import ConfigError
from flintmq.core.kernel.hookspecs import hookimpl

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.kernel.hookspecs import RegisterService
    from flintmq.core.kernel.ports import Service


class ConsolePlugin:
    """The plugin of the web console. If ``console.enable`` is true, its service starts the console's process when the broker is
    ready, and ends the process with the broker."""

    plugin_name = "console"

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("console", lambda context: make_service(context.api))


def make_service(api: BrokerApi) -> Service | None:
    """Return the service ``console``, or None if the console is switched off.

    Raises:
        ConfigError: the console is switched on, but a package that it needs is not installed, its certificate is unusable, or
            ``namesrv.addresses`` is empty.
    """
    if not api.settings.current.console.enable:
        return None
    from flintmq.plugins.console.child import check_certificate, check_installed
    from flintmq.plugins.console.service import ConsoleService

    check_installed()
    check_certificate(api.settings.current.console)
    if not api.settings.current.namesrv.addresses:
        raise ConfigError(
            "'console.enable' is true, but the console has no name server to find brokers: set 'namesrv.addresses'",
            key="console.enable",
        )
    return ConsoleService(api)
