"""Message properties: a map on the outside, one string on disk and on the wire (reference: store-format 2.1).

``name 0x01 value 0x02 name 0x01 value`` with or without a last 0x02; an entry without a name or a value is no entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
UNIQ_KEY: Final = "UNIQ_KEY"
CLUSTER: Final = "CLUSTER"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
CORRELATION_ID: Final = "CORRELATION_ID"
"""Tells which request a reply answers."""
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
"""Client id of who asked."""
TTL: Final = "TTL"
"""How long who asked waits, in ms."""
MSG_TYPE: Final = "MSG_TYPE"
"""``reply`` for a reply."""
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
"""When the broker passed a reply on, in ms."""
ARRIVE_TIME: Final = "ARRIVE_TIME"
"""When a reply arrived at who asked, in ms."""
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
"""When to deliver, in ms since 1970."""
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
"""When a waiting message is due, in ms since 1970; set by the broker."""
KEY_SEPARATOR: Final = " "


def string_to_properties(text: str) -> dict[str, str]:
    """Parses the stored form. Lenient like the reference: what is no entry is skipped, the last of equals wins."""
    result: dict[str, str] = {}
    if text:
        for entry in text.split(PROPERTY_SEPARATOR):
            name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
            if value and name:
                result[name] = value
    return result


def properties_to_string(properties: Mapping[str, str]) -> str:
    """The stored form, without a last separator (as 4.9 writes it)."""
    return PROPERTY_SEPARATOR.join(f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in properties.items())


def without_property(text: str, name: str) -> str:
    """The stored form with every entry of that name removed; the others stay byte for byte."""
    if name + NAME_VALUE_SEPARATOR not in text:
        return text
    prefix = name + NAME_VALUE_SEPARATOR
    return PROPERTY_SEPARATOR.join(entry for entry in text.split(PROPERTY_SEPARATOR) if not entry.startswith(prefix))
