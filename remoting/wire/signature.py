"""Signs requests and checks signatures (docs/internals/protocol.md, Access control).

The signature covers the *values* of all extFields except the signature itself, in the order of their names, then the body. It
covers neither the request code nor the boundaries between values. SECURITY.md describes the consequences for operators.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping

from flintmq.config.secret import Secret
from flintmq.remoting.wire.header_codec import ACCESS_KEY, SIGNATURE, SIGNED_AT, UNIQUE_KEY_QUERY


def signed_content(ext_fields: Mapping[str, str], body: bytes, *, without: str = "") -> bytes:
    """Return the bytes that a request's signature covers, optionally without one field."""
    names = sorted(name for name in ext_fields if name != SIGNATURE and name != without)
    return "".join([ext_fields[name] for name in names]).encode("utf-8", "replace") + body


def sign(secret: Secret, content: bytes) -> str:
    """Return the signature of some bytes: their HMAC-SHA1 with the secret, in Base64."""
    return base64.b64encode(hmac.digest(secret.reveal().encode(), content, "sha1")).decode("ascii")


def verify(secret: Secret, ext_fields: Mapping[str, str], body: bytes) -> bool:
    """Return whether a request's signature is valid for a secret, by a comparison in constant time."""
    given = ext_fields.get(SIGNATURE, "").encode("utf-8", "replace")
    good = hmac.compare_digest(given, sign(secret, signed_content(ext_fields, body)).encode())
    if UNIQUE_KEY_QUERY in ext_fields and not good:
        content = signed_content(ext_fields, body, without=UNIQUE_KEY_QUERY)
        good = hmac.compare_digest(given, sign(secret, content).encode())
    return good


def add_signature(ext_fields: dict[str, str], body: bytes, access_key: str, secret: Secret, signed_at: str) -> None:
    """Sign a request: add the signature, and the fields that the signature needs, to the request's extFields in place.

    Args:
        ext_fields: the extFields of the request.
        body: the body of the request.
        access_key: the name of the account.
        secret: the account's secret key.
        signed_at: the value of the field :data:`SIGNED_AT`; empty: leave the field out.
    """
    ext_fields[ACCESS_KEY] = access_key
    if signed_at:
        ext_fields[SIGNED_AT] = signed_at
    ext_fields.pop(SIGNATURE, None)
    ext_fields[SIGNATURE] = sign(secret, signed_content(ext_fields, body))
