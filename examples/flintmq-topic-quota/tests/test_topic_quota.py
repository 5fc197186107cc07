"""Messages that exceed their topic's quota are refused. In the next period, messages to the topic are accepted again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from flintmq_topic_quota.command import print_used
from flintmq_topic_quota.quota import Quota, QuotaService, QuotaStep

import flintmq
from flintmq.protocol import RefusedError
from flintmq.testing.intake_kit import IntakeSample, check_intake_step
from flintmq.testing.service_kit import check_service
from flintmq.testing.store import message


def test_the_quota_step_passes_the_intake_kit() -> None:
    """A message that fits the quota is accepted, and a message that exceeds it is refused."""
    fits, too_long = check_intake_step(
        lambda: QuotaStep(Quota(10), "Logs"),
        [IntakeSample(message("Logs", body=b"x" * 10)), IntakeSample(message("Logs", body=b"x" * 11))],
    )
    assert fits.refusal is None
    assert too_long.refusal is not None
    assert too_long.refusal.reason == "topic_quota.used"


def test_the_quota_service_passes_the_service_kit() -> None:
    """The counts of bytes sent to topics are reset at the end of a period."""
    quota = Quota(10)
    quota.take("Logs", 10)
    service = QuotaService(quota, 60, None)  # type: ignore[arg-type]
    assert service.health() == "the quota is used up: Logs"
    assert [(one.id, one.subject, one.value, one.key) for one in service.alarms()] == [
        ("topic_quota.used", "Logs", 10, "topic_quota.max_bytes")
    ]
    check_service(lambda timers: QuotaService(quota, 60, timers))
    assert not quota.used_bytes


def test_a_broker_refuses_messages_above_the_quota(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Topics without a quota are not limited. The command prints the sent bytes. A quota that is used up causes an alarm of the
    broker."""
    text = "listen: {port: 0, vip: false}\ntopic_quota: {max_bytes: 10}\n"
    (tmp_path / "broker.yaml").write_text(text + f"store: {{path: {tmp_path / 'store'}}}\n", encoding="utf-8")
    loaded = flintmq.load_config(tmp_path / "broker.yaml", [], {})

    async def live() -> None:
        # The configuration file does not list the plugin, because the broker finds an installed plugin by its entry point.
        async with flintmq.Broker(loaded) as broker:
            await broker.put([flintmq.Message("Logs", b"x" * 8), flintmq.Message("Orders", b"x" * 80)])
            with pytest.raises(RefusedError) as refused:
                await broker.put([flintmq.Message("Logs", b"x" * 8)])
            assert refused.value.key == "topic_quota.max_bytes"
            figures = broker.api.figures.texts()
            assert figures["topicQuotaUsedBytes"] == "8"
            await asyncio.to_thread(print_used, broker.address)
            await broker.put([flintmq.Message("Logs", b"x" * 2)])
            assert "topic_quota.used" in [alarm.id for alarm in broker.api.alarms.current()]

    asyncio.run(live())
    assert capsys.readouterr().out == "8\n"
