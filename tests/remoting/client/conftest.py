"""A broker and name server in one, in memory, for the tests of clients."""

from __future__ import annotations

import pytest

from flintmq.tests.support.fake_broker import FakeBroker


@pytest.fixture
def fake_broker() -> type[FakeBroker]:
    """The class: made of a peer, inside the running loop."""
    return FakeBroker
