"""Reads the time at which a certificate expires. The ``ssl`` module returns this time only for certificates of verified peers.

A certificate is a tree of ASN.1 values in DER. Each value is a tag, a length and a content (X.690). The time is near the
beginning of the certificate (RFC 5280, section 4.1)::

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
"""Number of a certificate's values before its validity: serial number, signature algorithm and issuer. The version is not
counted, because it is optional."""


def expires_ms(file: Path | str) -> int | None:
    """Return the earliest time at which a certificate in a PEM file expires, in ms since 1970; None if no time can be read.

    A file contains a certificate and the certificates that signed it. If one of them has expired, clients do not connect.
    """
    try:
        found = [
            not_after_ms(ssl.PEM_cert_to_DER_cert(pem))
            for pem in _PEM.findall(Path(file).read_text("ascii", "replace"))
        ]
    except (
        OSError,
        ValueError,
        IndexError,
    ):
        # OpenSSL has accepted the certificate, but this module cannot read it, so the end of its validity is unknown.
        return None
    return min(found, default=None)


def not_after_ms(der: bytes) -> int:
    """Return the time at which a certificate in DER expires, in ms since 1970.

    Raises:
        ValueError, IndexError: the bytes are not a certificate.
    """
    (tag, certificate), *_ = _values(der)
    (inner_tag, inner), *_ = _values(certificate)
    if tag != _SEQUENCE or inner_tag != _SEQUENCE:
        raise ValueError("a certificate must be an ASN.1 sequence that begins with another sequence")
    fields = [content for tag, content in _values(inner) if tag != _VERSION]
    (_, _), (tag, text), *_ = _values(fields[_BEFORE_VALIDITY])
    if tag not in (_UTC_TIME, _GENERALIZED_TIME):
        raise ValueError(f"a time of the certificate has the unknown ASN.1 tag {tag}")
    digits = text.decode("ascii")
    # A UTCTime has a year of two digits, of which 50 to 99 mean 1950 to 1999.
    if tag == _UTC_TIME:
        digits = f"{'19' if digits[:2] >= '50' else '20'}{digits}"
    return round(datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1000)


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the tag and the content of each ASN.1 value in a DER sequence."""
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        # In the long form of a DER length, the lower seven bits of the first byte are the number of length bytes that follow.
        if length >= 0x80:
            length, at = int.from_bytes(data[at : at + length - 0x80]), at + length - 0x80
        if at + length > len(data):
            raise ValueError("an ASN.1 value is longer than the sequence that contains the value")
        yield tag, data[at : at + length]
        at += length
