"""What ``flintmq bench flush`` is asked to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs


@attrs.frozen
class Contender:
    """One strategy with settings of its own, under a label."""

    label: str
    """What the table calls it: what was typed."""
    strategy: str
    settings: tuple[str, ...]
    """``key=value`` of the whole configuration."""


@attrs.frozen(kw_only=True)
class FlushPlan:
    """The load and the rounds."""

    contenders: tuple[Contender, ...]
    folder: Path
    """Where stores are made: the disk that is measured."""
    threads: int = 32
    """Writers; each puts a batch, waits until it is acknowledged, and puts the next one."""
    size_bytes: int = 1024
    """Of a body."""
    batch: int = 1
    """Messages in one put."""
    seconds: float = 2.0
    """Measured time of a round."""
    warmup_s: float = 0.5
    rounds: int = 5
    quiet_s: float = 0.0
    """How long to wait at most, before each strategy's turn, for others to leave the processors alone."""
    settings: tuple[str, ...] = ()
    """``key=value`` for every contender."""
    power_cut_s: float = 1.0
    """How long each strategy runs on the simulated disk; 0 leaves that out."""

    def as_json(self) -> dict[str, Any]:
        plain = attrs.asdict(self, filter=lambda attribute, _value: attribute.name not in ("contenders", "folder"))
        return plain | {"settings": list(self.settings), "strategies": [c.label for c in self.contenders]}

    def order(self, round_number: int) -> tuple[Contender, ...]:
        """Return the order of a round, which rotates so that no contender gains by its place."""
        at = round_number % len(self.contenders)
        return self.contenders[at:] + self.contenders[:at]

    def overrides(self, contender: Contender) -> list[str]:
        """Return the settings of a contender's broker or store, the caller's last."""
        return [f"flush.strategy={contender.strategy}", *self.settings, *contender.settings]


def parse_contender(text: str) -> Contender:
    """Return a contender of a text: ``group_commit``, ``plugin/name``, or with settings, ``group_commit:interval_ms=1:...``.

    Raises:
        ValueError: the name is missing, or a setting is not ``key=value``.
    """
    strategy, *settings = text.split(":")
    if not strategy or any("=" not in setting or setting.startswith("=") for setting in settings):
        raise ValueError(f"'{text}' is not name or name:key=value:...")
    section = strategy.rpartition("/")[2]
    return Contender(text, strategy, tuple(f"flush.{section}.{setting}" for setting in settings))
