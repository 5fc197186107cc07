"""Reads when a certificate ends. The ``ssl`` module tells it only of certificates of peers that it has verified.

A certificate is a tree of ASN.1 values in DER, each a tag, a length and a content (X.690); what is needed lies near its
beginning (RFC 5280, section 4.1)::

    Certificate
    └─ TBSCertificate: [version], serial number, signature algorithm, issuer, Validity, …
                                                                              └─ notBefore, notAfter
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_BEFORE_VALIDITY: Final = 3
"""Serial number, signature algorithm, issuer."""


def expires_ms(file: Path | str) -> int | None:
    """Return when the first certificate of a PEM file ends that does so, in ms since 1970; None where none can be read.

    A file holds a certificate and those that vouch for it: with any of them ended, clients do not connect.
    """
    try:
        found = [
            not_after_ms(ssl.PEM_cert_to_DER_cert(pem))
            for pem in _PEM.findall(Path(file).read_text("ascii", "replace"))
        ]
    except (OSError, ValueError, IndexError):  # OpenSSL has taken the file, so this is a form that it alone knows
        return None
    return min(found, default=None)


def not_after_ms(der: bytes) -> int:
    """Return when a certificate ends, in ms since 1970.

    Raises:
        ValueError, IndexError: it has not the form of a certificate.
    """
    (tag, certificate), *_ = _values(der)
    (inner_tag, inner), *_ = _values(certificate)
    if tag != _SEQUENCE or inner_tag != _SEQUENCE:
        raise ValueError("a certificate is a sequence that begins with another one")
    fields = [content for tag, content in _values(inner) if tag != _VERSION]
    (_, _), (tag, text), *_ = _values(fields[_BEFORE_VALIDITY])
    if tag not in (_UTC_TIME, _GENERALIZED_TIME):
        raise ValueError(f"a time has the tag {tag}")
    digits = text.decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year: 50 to 99 are of the last century
        digits = f"{'19' if digits[:2] >= '50' else '20'}{digits}"
    return round(datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1000)


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return tag and content of the values that follow one another."""
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length >= 0x80:  # then so many bytes hold the length
            length, at = int.from_bytes(data[at : at + length - 0x80]), at + length - 0x80
        if at + length > len(data):
            raise ValueError("a value is longer than what holds it")
        yield tag, data[at : at + length]
        at += length
