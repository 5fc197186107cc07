"""One line for each administrative request: the account, the request, the address and the result.

Lines go to the logger ``flintmq.audit``. They hold names and settings' keys, never bodies, signatures or secret keys, and
every value is written as a quoted literal, so that no name can forge a line.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from flintmq.remoting.wire.header_codec import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, SIGNED_AT

log = logging.getLogger("flintmq.audit")

_UNTOLD: Final = frozenset({ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, SIGNED_AT, "secretKey", "value"})
_VALUE_MAX: Final = 120
_FIELDS_MAX: Final = 12


def audit(what: str, ext_fields: Mapping[str, str], address: str, result: str) -> None:
    """Write one line.

    Args:
        what: the name of the request.
        ext_fields: the request's fields, written without secrets.
        address: where it came from.
        result: ``ok``, or a code and the reason.
    """
    who = ext_fields.get(ACCESS_KEY)
    told = [name for name in sorted(ext_fields) if name not in _UNTOLD][:_FIELDS_MAX]
    fields = " ".join(f"{_quoted(name)}={_quoted(ext_fields[name])}" for name in told)
    log.info(
        "who=%s what=%s %s from=%s result=%s",
        _quoted(who) if who else "-",
        what,
        fields or "-",
        address,
        _quoted(result),
    )


def _quoted(text: str) -> str:
    return ascii(text[:_VALUE_MAX])
