"""A certificate that ends takes every client away at once, on a day that was known for years."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from flintmq.core.kernel.ports.alarm import Alarm
from flintmq.testing.clock import VirtualClock
from flintmq.testing.embedded import EmbeddedBroker

Alarms = Callable[[EmbeddedBroker], dict[str, Alarm]]

DAY_MS = 86_400_000


def certify(folder: Path, days: int) -> None:
    """Put a certificate for so many days into one.pem, with its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("makes certificates with openssl, which is not installed")
    made = subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", str(days),
         "-subj", "/CN=one", "-keyout", str(folder / "one.key"), "-out", str(folder / "one.pem")],
        capture_output=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr


def test_a_certificate_that_expires_soon_has_an_alarm_until_its_renewal(alarms: Alarms, tmp_path: Path) -> None:
    """Three days are left; the new one, put into its place, is read by itself; nobody renews that one."""
    certify(tmp_path, 3)
    clock = VirtualClock()
    settings = [
        f"listen.tls.certificate={tmp_path / 'one.pem'}",
        f"listen.tls.key={tmp_path / 'one.key'}",
        "listen.tls.mode=permissive",
    ]
    with EmbeddedBroker(settings=settings, clock=clock) as broker:
        found = alarms(broker)["certificate.expiring"]
        assert (found.level, found.subject, found.unit) == ("warning", str(tmp_path / "one.pem"), "ms")
        assert 2.9 * DAY_MS < found.value <= 3 * DAY_MS
        assert found.limit == 14 * DAY_MS
        assert found.key == "alarms.certificate_days"
        certify(tmp_path, 100)
        clock.advance("10s")
        assert alarms(broker) == {}
        clock.set_wall_clock(clock.now_ms() + 99 * DAY_MS)
        assert alarms(broker).keys() == {"certificate.expiring"}
        clock.set_wall_clock(clock.now_ms() + 2 * DAY_MS)
        expired = alarms(broker)
        assert expired.keys() == {"certificate.expired"}
        assert expired["certificate.expired"].level == "critical"
