"""Two reports are compared only as far as they can be: machines, settings and intervals decide what a ratio is worth."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from flintmq.programs.bench.flush_report import check_report, diff_reports
from flintmq.tests.support.bench_reports import a_report


def test_two_benchmark_reports_of_the_same_machine_are_compared_by_the_ratio_of_each_result() -> None:
    first, second = a_report(100), a_report(150)
    second["environment"]["disk"]["folder"] = "/b"
    found = diff_reports(first, second)
    assert found.same_machine
    assert found.differences == ()
    by_name = {one.figure: one for one in found.figures}
    assert by_name["rate"].ratio == 1.5
    assert by_name["rate"].certain
    assert not by_name["p50_ms"].certain


def test_the_comparison_of_two_benchmark_reports_lists_different_environment_values_and_settings() -> None:
    first, second = a_report(100), a_report(100)
    second["environment"]["disk"]["filesystem"] = "xfs"
    second["plan"]["threads"] = 8
    second["config"]["group_commit"]["flush.group_commit.interval_ms"] = "1ms"
    second["strategies"].append(copy.deepcopy(second["strategies"][0]) | {"strategy": "other"})
    found = diff_reports(first, second)
    assert not found.same_machine
    assert [(one.name, one.first, one.second) for one in found.differences] == [
        ("disk.filesystem", "ext4", "xfs"),
        ("plan.threads", 4, 8),
        ("config.group_commit.flush.group_commit.interval_ms", None, "1ms"),
    ]
    assert found.only_second == ("other",)


@pytest.mark.parametrize("document", [[], {}, {"report": "something"}, {"report": "flintmq bench flush", "format": 99}])
def test_documents_that_are_no_benchmark_reports_are_refused(document: Any) -> None:
    with pytest.raises(ValueError, match="file"):
        check_report(document, "file")
