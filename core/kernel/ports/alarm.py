"""What is wrong with a broker now, in one form for ``flintmq status``, consoles and metrics."""

from __future__ import annotations

from typing import Final, Literal

import attrs

WARNING: Final = "warning"
"""Something needs a look, and everybody is served meanwhile."""
CRITICAL: Final = "critical"
"""Somebody is not served, or what was promised is in danger."""

Level = Literal["warning", "critical"]
_TEXT: Final = attrs.validators.instance_of(str)


@attrs.frozen
class Alarm:
    """One thing that is wrong now. It is gone from the list as soon as it is right again.

    ``docs/alarms.md`` has a section for each id of the built-in features. What clients name may stand in ``subject`` and
    ``message`` as it is: texts are cut and their control characters escaped where the alarms are gathered.
    """

    id: str = attrs.field(validator=_TEXT)
    """Stays as it is when the words change, as the reasons of refusals do: ``store.fenced``, ``consumer.lag_growing``."""
    level: Level = attrs.field(validator=attrs.validators.in_((WARNING, CRITICAL)))
    """:data:`WARNING` or :data:`CRITICAL`."""
    subject: str = attrs.field(validator=_TEXT)
    """The group, topic, folder, plugin … that it is about; empty for the broker itself."""
    message: str = attrs.field(validator=_TEXT)
    """One sentence for people: what is wrong, and what to change."""
    value: int | float = 0
    """What was measured."""
    unit: str = ""
    """Of ``value`` and ``limit``: ``bytes``, ``ms``, ``messages``, ``ratio`` (0 to 1) …; empty where nothing was measured."""
    limit: int | float = 0
    """The bound that ``value`` has passed."""
    key: str = ""
    """The setting that changes the outcome; empty where there is none."""
