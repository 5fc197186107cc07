"""A broker that starts on a full disk must refuse writes from its first request on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.core.broker.api import BrokerApi
from flintmq.core.kernel.ports.processor import Request
from flintmq.plugins.retention.plugin import RetentionProcessor, RetentionService
from flintmq.remoting.wire.codes import RequestCode


class Cleaner:
    """Notes what it is asked for."""

    def __init__(self, *_arguments: object) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda: self.asked.append(name)


def test_the_disks_are_measured_before_anything_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first round comes ten seconds later, and queues of topics with a retention of their own begin where it says."""
    monkeypatch.setattr("flintmq.plugins.retention.plugin.CleanCommitLogService", Cleaner)
    timers: list[str] = []
    store = SimpleNamespace(clean_resource_interval_ms=10_000)
    api: Any = SimpleNamespace(
        store=None,
        readers=None,
        topics=SimpleNamespace(keeping_topics=frozenset()),
        config=SimpleNamespace(store=store),
        timers=SimpleNamespace(pace=lambda _first_s, _work, name: timers.append(name)),
    )
    checked: BrokerApi = api
    service: Any = RetentionService(checked)
    service.start()
    assert service.cleaner.asked == ["check_space", "expire_topics"]
    assert timers == ["retention", "resident pages"]


def test_operators_ask_for_deletions_by_request() -> None:
    """306 removes queues at once, 329 begins rounds that delete at any hour."""
    cleaner: Any = Cleaner()
    handlers = RetentionProcessor(cleaner).handlers()
    request: Any = SimpleNamespace()
    asked: Request = request
    for code in (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.DELETE_EXPIRED_COMMITLOG):
        answer: Any = handlers[code](asked)
        assert answer.code == 0
    assert cleaner.asked == ["clean_expired_queues", "delete_manually"]
