"""Gives the features of a broker access to the broker's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flintmq.config import LoadedConfig
    from flintmq.config.sections.models import BrokerConfig
    from flintmq.core.broker.state import BrokerState


class Settings:
    """The settings of a broker that are in force, and its settings at the start. Used only on the event loop's thread."""

    __slots__ = ("_state",)

    def __init__(self, state: BrokerState) -> None:
        self._state: Final = state

    @property
    def current(self) -> BrokerConfig:
        """The broker's settings in force. Some settings change while the broker runs, so read them each time."""
        return self._state.config

    @property
    def start(self) -> LoadedConfig:
        """The broker's configuration at the start, with the origin of each value."""
        return self._state.loaded

    def update(self, config: BrokerConfig) -> None:
        """Apply a new configuration, which may differ only in settings that can change while the broker runs."""
        self._state.update_config(config)
