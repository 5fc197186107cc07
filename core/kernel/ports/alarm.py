"""Alarms: the current problems of a broker, in one form for ``flintmq status``, consoles and metrics."""

from __future__ import annotations

from typing import Final, Literal

import attrs

WARNING: Final = "warning"
"""Level of an alarm that needs attention while all clients are still served."""
CRITICAL: Final = "critical"
"""Level of an alarm that means that some clients are not served, or that stored messages are in danger."""

Level = Literal["warning", "critical"]
_TEXT: Final = attrs.validators.instance_of(str)


@attrs.frozen
class Alarm:
    """A current problem of a broker. A service returns it from ``alarms()`` for as long as the problem lasts.

    ``docs/alarms.md`` has a section for each id of the built-in features. ``subject`` and ``message`` may contain names that
    clients chose, unchanged: the broker shortens the texts and escapes control characters when it collects the alarms.
    """

    id: str = attrs.field(validator=_TEXT)
    """Stable identifier of the alarm, such as ``store.fenced``. The identifier does not change when the alarm's message is
    reworded."""
    level: Level = attrs.field(validator=attrs.validators.in_((WARNING, CRITICAL)))
    """Level of the alarm: :data:`WARNING` or :data:`CRITICAL`."""
    subject: str = attrs.field(validator=_TEXT)
    """Name of the group, topic, folder or plugin that has the problem; empty if the broker itself has the problem."""
    message: str = attrs.field(validator=_TEXT)
    """One sentence for people that describes the problem and the remedy."""
    value: int | float = 0
    """Measured value that raised the alarm, in :attr:`unit`; 0 if nothing was measured."""
    unit: str = ""
    """Unit of ``value`` and ``limit``: ``bytes``, ``ms``, ``messages``, ``ratio`` (0 to 1) …; empty if nothing was measured."""
    limit: int | float = 0
    """Bound that :attr:`value` has passed, in :attr:`unit`; 0 if nothing was measured."""
    key: str = ""
    """Key of the setting that helps against the problem; empty if no setting helps."""
