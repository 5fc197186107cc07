"""The stores of these tests are small; most tests want them to be read as large ones are."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def reads_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consume queues are asked, however little there is to read."""
    from flintmq.plugins.spark.store import (  # needs pyarrow, and this file is read without it too
        piece_reader,
        transport,
    )

    monkeypatch.setattr(transport, "BY_UNITS_FROM_BYTES", 0)
    monkeypatch.setattr(piece_reader, "ASKED_FROM_BYTES", 0)
