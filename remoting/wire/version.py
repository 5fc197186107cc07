"""Version ordinals: the wire carries a version's place in RocketMQ's list of versions.

See docs/internals/protocol.md, Language and version.
"""

from __future__ import annotations

from typing import Final

V3_0_7_SNAPSHOT: Final = 28
"""From here on consumers understand offset reset and status pushes (220, 222, 307)."""
V3_0_11: Final = 37
"""From here on REGISTER_BROKER carries a RegisterBrokerBody."""
V3_1_8_SNAPSHOT: Final = 62
"""From here on consumers understand the running-info requests (307, 309)."""
V3_4_9: Final = 121
"""From here on a request's ``maxReconsumeTimes`` overrides the group's setting."""
V4_0_0: Final = 213
V4_1_0: Final = 233
V4_2_0: Final = 253
V4_3_0: Final = 273
V4_4_0: Final = 293
V4_5_0: Final = 313
V4_6_0: Final = 333
V4_7_0: Final = 353
V4_8_0: Final = 373
V4_9_0: Final = 393
V4_9_2: Final = 397
V4_9_3: Final = 399
V4_9_4: Final = 401
"""From here on clients read route data as strict JSON."""
V4_9_5: Final = 403
V4_9_7: Final = 407
V4_9_8: Final = 409
V5_0_0: Final = 413

MQ_VERSION: Final = V4_9_7
"""What FlintMQ says it is: the release its answers were compared with."""

VERSION_NAMES: Final[dict[int, str]] = {
    ordinal: name for name, ordinal in globals().copy().items() if name.startswith("V") and isinstance(ordinal, int)
}


def version_name(ordinal: int) -> str:
    """The name of an ordinal, such as ``V4_9_7``; the nearest known release below with a ``+`` for one in between."""
    if ordinal in VERSION_NAMES:
        return VERSION_NAMES[ordinal]
    below = [known for known in VERSION_NAMES if known < ordinal]
    return f"{VERSION_NAMES[max(below)]}+" if below else f"V?{ordinal}"
