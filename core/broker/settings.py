"""The settings of a broker as features see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flintmq.config import LoadedConfig
    from flintmq.config.sections.models import BrokerConfig
    from flintmq.core.broker.state import BrokerState


class Settings:
    """The settings in force, and those of the start. Loop thread."""

    __slots__ = ("_state",)

    def __init__(self, state: BrokerState) -> None:
        self._state: Final = state

    @property
    def current(self) -> BrokerConfig:
        """The settings in force. Some change while the broker runs: read them when they are needed."""
        return self._state.config

    @property
    def start(self) -> LoadedConfig:
        """The configuration of the start, with the origin of each value."""
        return self._state.loaded

    def update(self, config: BrokerConfig) -> None:
        """Take settings that may change while the broker runs."""
        self._state.update_config(config)
