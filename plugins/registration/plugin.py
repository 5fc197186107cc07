"""Registers the service that registers a broker with its name servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.core.kernel.hookspecs import RegisterService, hookimpl
from flintmq.plugins.registration.registration import Registration

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi


class RegistrationPlugin:
    """Registers the broker with the name servers of ``namesrv.addresses``."""

    plugin_name = "registration"

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("registration", _make)


def _make(api: BrokerApi) -> Registration | None:
    return Registration(api) if api.config.namesrv.addresses else None
