"""A client that cannot send must learn whether the disk or the process's limits are to blame: the cures differ."""

from __future__ import annotations

import pytest

from flintmq.core.errors import StoreExhaustedError, StoreFullError
from flintmq.core.log.no_room import no_room


@pytest.mark.parametrize(
    ("error", "reason", "key"),
    [
        (StoreFullError("/store: no room"), "store.disk_full", "store.path"),
        (StoreExhaustedError("/store: too many open files"), "store.exhausted", "ulimit -n"),
    ],
)
def test_the_refusal_by_a_full_store_names_the_exhausted_resource_and_its_setting(
    error: StoreFullError, reason: str, key: str
) -> None:
    """The response code makes RocketMQ's clients try another broker."""
    refused = no_room(error)
    assert refused.code == 14
    assert refused.reason == reason
    assert refused.key is not None
    assert refused.key.startswith(key)
    assert str(error) in (refused.measured or "")
