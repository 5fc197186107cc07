"""What a third party measures is told where it can be, and its author reads what cannot."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.core.errors import FlintError
from flintmq.core.kernel.ports.metrics import Measurement, checked


def test_long_labels_of_a_valid_metric_measurement_are_shortened_to_300_characters() -> None:
    """A value is a float, whatever number it was."""
    told = checked(Measurement("audit_lines_total", 3, {"file": "x" * 1000}, "counter", "Lines."))
    assert (told.name, told.value, len(told.labels["file"])) == ("audit_lines_total", 3.0, 300)


@pytest.mark.parametrize(
    ("one", "says"),
    [
        ("text", "found a str"),
        (Measurement("audit lines", 1), "cannot be called 'audit lines'"),
        (Measurement("rocketmq_mine", 1), "cannot be called 'rocketmq_mine'"),
        (Measurement("audit_lines", 1, kind="counter"), "must end with _total"),
        (Measurement("audit_total", 1), "must end with _total"),
        (Measurement("audit", 1, {"a b": "x"}), "a label cannot be called 'a b'"),
        (Measurement("audit", 1, {"__name__": "x"}), "a label cannot be called"),
        (Measurement("audit", 1, {"node_id": "x"}), "a label cannot be called"),
    ],
)
def test_a_measurement_with_an_invalid_name_or_type_or_label_is_refused(one: Any, says: str) -> None:
    """One wrong line would make monitoring refuse the whole answer."""
    with pytest.raises(FlintError, match=says):
        checked(one)
