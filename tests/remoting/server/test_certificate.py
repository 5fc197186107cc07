"""When a certificate ends is read from its bytes: from every form that authorities make, and from nothing else."""

from __future__ import annotations

import contextlib
import shutil
import ssl
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.remoting.server.certificate import expires_ms, not_after_ms

OPENSSL = shutil.which("openssl")
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="makes certificates with openssl, which is not installed")


def certified(folder: Path, name: str, days: int, kind: tuple[str, ...]) -> Path:
    """A certificate of openssl's for so many days."""
    file = folder / f"{name}.pem"
    subprocess.run(
        [str(OPENSSL), "req", "-x509", *kind, "-nodes", "-days", str(days), "-subj", f"/C=DE/O={name * 40}/CN={name}",
         "-keyout", str(folder / f"{name}.key"), "-out", str(file)],
        capture_output=True, check=True,
    )  # fmt: skip
    return file


def as_openssl_says(file: Path) -> int:
    """The same, by another implementation."""
    told = subprocess.run(
        [str(OPENSSL), "x509", "-in", str(file), "-noout", "-enddate"], capture_output=True, check=True, text=True
    ).stdout
    return round(ssl.cert_time_to_seconds(told.strip().removeprefix("notAfter=")) * 1000)


EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


@needs_openssl
@pytest.mark.parametrize(
    ("days", "kind"), [(1, EC), (3_000, EC), (36_500, EC), (30, ("-newkey", "rsa:2048")), (30, ("-newkey", "ed25519"))]
)
def test_the_expiry_time_read_from_a_certificate_equals_the_time_that_openssl_prints(
    tmp_path: Path, days: int, kind: tuple[str, ...]
) -> None:
    """From 2050 on years have four digits; keys and names are of any length."""
    file = certified(tmp_path, "a", days, kind)
    assert expires_ms(file) == as_openssl_says(file)


@needs_openssl
def test_the_expiry_time_of_a_certificate_chain_is_the_earliest_among_its_certificates(tmp_path: Path) -> None:
    """Other parts of the file, such as the key, are ignored."""
    late, soon = certified(tmp_path, "a", 300, EC), certified(tmp_path, "b", 3, EC)
    both = tmp_path / "both.pem"
    both.write_text(
        "".join((late.read_text(), (tmp_path / "a.key").read_text(), "friendlyName: x\n", soon.read_text()))
    )
    assert expires_ms(both) == as_openssl_says(soon)


def tlv(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([tag, 0x80 + size]) + length.to_bytes(size) + content


def made(not_after: bytes, *, tag: int = 0x17, version: bool = True) -> bytes:
    """The beginning of a certificate, by the book."""
    validity = tlv(0x30, tlv(0x17, b"200101000000Z") + tlv(tag, not_after))
    fields = tlv(0x02, b"\x01") + tlv(0x30, b"") + tlv(0x30, b"x" * 300) + validity
    head = tlv(0xA0, tlv(0x02, b"\x02")) if version else b""
    return tlv(0x30, tlv(0x30, head + fields) + tlv(0x30, b""))


@pytest.mark.parametrize(
    ("der", "year"),
    [
        (made(b"491231235959Z"), 2049),
        (made(b"991231235959Z"), 1999),
        (made(b"20501231235959Z", tag=0x18), 2050),
        (made(b"99991231235959Z", tag=0x18), 9999),
        (made(b"301231235959Z", version=False), 2030),
    ],
)
def test_two_digit_years_are_read_as_in_rfc_5280(der: bytes, year: int) -> None:
    """RFC 5280, section 4.1.2.5."""
    assert not_after_ms(der) == datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp() * 1000


def test_the_expiry_of_an_unreadable_certificate_is_none(tmp_path: Path) -> None:
    """OpenSSL has judged the file before; a broker starts with whatever it takes."""
    assert expires_ms(tmp_path / "none.pem") is None
    (tmp_path / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    assert expires_ms(tmp_path / "key.pem") is None
    (tmp_path / "bad.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert expires_ms(tmp_path / "bad.pem") is None


@given(st.binary(max_size=400), st.integers(0, 420), st.integers(0, 255))
def test_damaged_certificates_raise_only_value_error_or_index_error(noise: bytes, at: int, byte: int) -> None:
    """The reader must also end quickly on any damaged file."""
    bent = bytearray(made(b"301231235959Z"))
    bent[at % len(bent)] = byte
    for data in (noise, bytes(bent)):
        with contextlib.suppress(ValueError, IndexError):
            assert isinstance(not_after_ms(data), int)
