"""Spark pulling from the real Java broker, which knows nothing of Spark, and sending to it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import flintmq

from .conftest import Peer

TESTS = Path(str(flintmq.__file__)).parent / "tests"
sys.path[:0] = [str(TESTS / "integration")]

from spark_load import killed_four_times  # noqa: E402
from spark_missing import need_spark  # noqa: E402
from spark_round_trip import check_round_trip  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(1_500)]


@pytest.mark.longest
def test_a_killed_spark_query_loses_and_repeats_no_message_of_a_java_broker(peer: Peer, tmp_path: Path) -> None:
    """The same promise as from our own broker: offsets, pulls and what counts as a loss are RocketMQ's."""
    need_spark()
    with peer.name_server(), peer.broker(tmp_path / "store"):
        killed_four_times(peer.namesrv, "Stream", tmp_path)


def test_spark_sends_each_row_once_and_unchanged_to_a_java_broker(peer: Peer, tmp_path: Path) -> None:
    """Batch messages, properties and routes are RocketMQ's; so is what comes back."""
    need_spark()
    with peer.name_server(), peer.broker(tmp_path / "store"):
        check_round_trip(peer.namesrv, tmp_path)
