"""No descriptor or map is left, at any place where one is asked for: nothing is wrong with the disk then, so nothing may be
fenced, nothing that was acknowledged be lost, and all goes on when there are some again."""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bare_wire import Wire

import flintmq
from flintmq.core.errors import StoreExhaustedError
from flintmq.core.io import os_region
from flintmq.core.response_code import ResponseCode

QUEUES = 4
AGAIN_S = 20.0


class Scarcity:
    """From the n-th time on that a file or folder of a store is opened, or a file mapped, there is nothing left, until healed.

    Args:
        root: of the store; files elsewhere are nobody's business.
        patch: takes it back at the end of the test.
    """

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self._root = str(root)
        self.count = 0
        self.left: int | None = None
        """How many may still be opened; None for any number."""
        self.hits = 0
        self.places: set[str] = set()
        for module, name in (
            (os, "open"),
            (os, "listdir"),
            (os, "scandir"),
            (io, "open"),
            (builtins, "open"),
        ):
            patch.setattr(module, name, self._scarce(getattr(module, name), name))
        real_map = os_region.map_shared

        def map_shared(fd: int, size_bytes: int) -> Any:
            self._take(errno.ENOMEM, "map")
            return real_map(fd, size_bytes)

        patch.setattr(os_region, "map_shared", map_shared)

    def _scarce(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def scarce(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(self._root):
                self._take(errno.EMFILE, f"{name} {os.path.basename(os.path.dirname(path))}")  # noqa: PTH119, PTH120
            return real(path, *arguments, **options)

        return scarce

    def _take(self, number: int, place: str) -> None:
        self.count += 1
        if self.left is None:
            return
        if self.left:
            self.left -= 1
            return
        self.hits += 1
        self.places.add(place)
        raise OSError(number, os.strerror(number))


class Fences:
    """Notes when the broker was fenced."""

    plugin_name = "fences"

    def __init__(self) -> None:
        self.reasons: list[str] = []

    @flintmq.hookimpl
    def flintmq_broker_fenced(self, api: Any, reason: str) -> None:
        self.reasons.append(reason)


def use(broker: flintmq.Broker, wire: Wire, promised: dict[tuple[str, int, int], bytes], name: str) -> set[int]:
    """New topics, files that end, offsets and tables that are written; returns the codes that were answered."""
    codes = set()
    for number in range(12):
        topic, body = f"{name}{number % 3}", b"%s %d " % (name.encode(), number) * 900
        opaque = wire.post_send(topic, body, queue_id=number % QUEUES)
        answer = wire.answer(opaque, 30)
        codes.add(answer.code)
        if answer.code == 0:
            fields = answer.ext_fields or {}
            promised[topic, int(fields["queueId"]), int(fields["queueOffset"])] = body
    wire.ask(15, {"consumerGroup": "G", "topic": f"{name}0", "queueId": "0", "commitOffset": "1"})

    async def persist() -> None:
        for timer in ("consumer offsets", "delay offsets", "topics and groups", "retention", "dispatch"):
            with contextlib.suppress(StoreExhaustedError):  # a timer survives, and tries again when it is due
                broker.timers.run_now(timer)

    broker.call(persist)
    return codes


def check(config: Any, promised: dict[tuple[str, int, int], bytes]) -> None:
    """Everything that was acknowledged is at its place after a start."""
    with flintmq.Broker(config) as broker:
        wire = Wire(broker.address)
        for (topic, queue_id, queue_offset), body in promised.items():
            assert wire.pull(topic, queue_offset, queue_id=queue_id).bodies[:1] == [body], (topic, queue_offset)
        wire.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", ["group_commit", "flush_real_time", "commit_real_time"])
def test_running_out_of_file_descriptors_at_any_file_operation_loses_no_acknowledged_message(
    strategy: str, configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """With ``--slow``, descriptors are exhausted at each place, and without it at every fourth place."""
    scarce = Scarcity(tmp_path, monkeypatch)
    step = 1 if request.config.getoption("--slow") else 4
    number, end = 0, 1
    while number < end:
        config = configure(
            f"flush.strategy={strategy}",
            "store.commit_log_file_bytes=32768",
            "flush.group_commit.sync_flush_timeout_ms=200ms",
            "flush.commit_real_time.pool_size=2",
            store=f"store{number}",
        )
        fences = Fences()
        promised: dict[tuple[str, int, int], bytes] = {}
        with flintmq.Broker(config, plugins=[fences]) as broker:
            wire = Wire(broker.address)
            before = scarce.count
            scarce.left = number
            codes = use(broker, wire, promised, "A")
            scarce.left = None
            end = max(end, scarce.count - before)
            allowed = {
                0,
                int(ResponseCode.SERVICE_NOT_AVAILABLE),
                int(ResponseCode.FLUSH_DISK_TIMEOUT),
                int(ResponseCode.SYSTEM_ERROR),
                int(ResponseCode.TOPIC_NOT_EXIST),
            }
            assert codes <= allowed, codes
            until_s = time.monotonic() + AGAIN_S
            while use(broker, wire, promised, "B") != {0}:
                assert time.monotonic() < until_s, f"it does not go on: {number}"
            assert wire.is_served()
            assert not fences.reasons, (number, fences.reasons)
            assert broker.state.store.watermarks.fence_reason is None
            wire.close()
        assert not (tmp_path / f"store{number}" / "abort").exists(), f"it is left clean: {number}"
        check(config, promised)
        number += step
    assert scarce.hits >= 5
    assert len(scarce.places) >= 3, scarce.places


def test_a_send_for_which_no_file_descriptor_is_free_is_refused_with_the_reason(configure: Any, tmp_path: Path) -> None:
    """The answer names the reason, the measured number and the remedy; sends succeed when descriptors are free again."""
    with (
        pytest.MonkeyPatch.context() as patch,
        flintmq.Broker(configure("store.commit_log_file_bytes=32768")) as broker,
    ):
        wire = Wire(broker.address)
        assert wire.is_served()
        scarce = Scarcity(tmp_path, patch)
        scarce.left = 0
        answers = [wire.send("NewTopic", b"x"), *(wire.send("Healthy", bytes(20_000)) for _ in range(6))]
        refused = [answer for answer in answers if answer.code != 0]
        assert answers[0] in refused
        assert len(refused) >= 2
        for answer in refused:
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "[store.exhausted; measured " in answer.remark
            assert "ulimit -n" in answer.remark
        scarce.left = None
        assert wire.is_served()
        assert broker.state.store.trouble is None
        wire.close()
