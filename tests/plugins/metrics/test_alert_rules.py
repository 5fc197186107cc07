"""The alert rules in docs/prometheus fire when they should and not before: by promtool where it is, and by evaluation."""

from __future__ import annotations

import itertools
import operator
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

from flintmq.plugins.metrics.families import FAMILIES

RULES_FILE = Path(__file__).resolve().parents[3] / "docs" / "prometheus" / "alerts.yaml"
CASES_FILE = Path(__file__).parent / "alerts_test.yaml"
RULES = {rule["alert"]: rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]}
CASES = yaml.safe_load(CASES_FILE.read_text())["tests"]
CHECKS = [(index, check) for index, case in enumerate(CASES) for check in case["alert_rule_test"]]

Labels = frozenset[tuple[str, str]]
COMPARISONS = {">": operator.gt, "==": operator.eq, "<": operator.lt}
LOOKBACK_S = 300


def seconds(text: str) -> int:
    """Return a duration like ``10m`` in seconds."""
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


@attrs.frozen
class Series:
    """One series of a case: its samples by time in seconds."""

    name: str
    labels: Labels
    samples: dict[int, float]

    @classmethod
    def parse(cls, series: str, values: str, interval_s: int) -> Series:
        """Read promtool's notation: ``a+bxN`` is a value and N more of them, ``_`` is none."""
        found = re.fullmatch(r"(\w+)\{(.*)\}", series)
        assert found, series
        samples: list[float | None] = []
        for part in values.split():
            number = re.fullmatch(r"(-?[\d.]+)(?:([+-][\d.]+))?(?:x(\d+))?", part)
            assert number or part == "_", part
            if number:
                first, step, more = float(number[1]), float(number[2] or 0), int(number[3] or 0)
                samples += [first + step * n for n in range(more + 1)]
            else:
                samples.append(None)
        labels = frozenset((name, value) for name, value in re.findall(r'(\w+)="([^"]*)"', found[2]) if value)
        told = {n * interval_s: one for n, one in enumerate(samples) if one is not None}
        return cls(found[1], labels, told)


def selected(text: str, all_series: list[Series]) -> Iterator[Series]:
    """Yield the series that a selector chooses; matchers of equality are all that the rules have."""
    found = re.fullmatch(r"(\w+)(?:\{([^}]*)\})?", text)
    assert found, text
    wanted = set(re.findall(r'(\w+)="([^"]*)"', found[2] or ""))
    return (one for one in all_series if one.name == found[1] and wanted <= one.labels)


def over_time(function: str, samples: list[tuple[int, float]]) -> float:
    """Return what ``deriv`` or ``increase`` makes of samples; of the latter's extrapolation only the sign counts here."""
    if function == "increase":
        pairs = itertools.pairwise(samples)
        return sum(after - before if after >= before else after for (_, before), (_, after) in pairs)
    mean_s = sum(at_s for at_s, _ in samples) / len(samples)
    mean = sum(value for _, value in samples) / len(samples)
    over = sum((at_s - mean_s) * (value - mean) for at_s, value in samples)
    return over / sum((at_s - mean_s) ** 2 for at_s, _ in samples)


def evaluate(expression: str, all_series: list[Series], now_s: int) -> dict[Labels, float]:
    """Return what a rule's expression is at a time: the labels and the value of each series for which it holds."""
    both = [part.strip() for part in re.split(r"\band\b", expression)]
    if len(both) == 2:
        left, right = (evaluate(part, all_series, now_s) for part in both)
        return {labels: value for labels, value in left.items() if labels in right}
    found = re.fullmatch(r"(?:(deriv|increase)\((.+)\[(\w+)\]\)|(\S+)) (>|<|==) ([\d.]+)", expression.strip())
    assert found, f"not understood: {expression}"
    function, ranged, span, instant, comparison, limit = found.groups()
    held = {}
    for one in selected(ranged or instant, all_series):
        since_s = now_s - (seconds(span) if function else LOOKBACK_S)
        within = [(at_s, value) for at_s, value in one.samples.items() if since_s < at_s <= now_s]
        if len(within) < (2 if function else 1):
            continue
        value = over_time(function, within) if function else within[-1][1]
        if COMPARISONS[comparison](value, float(limit)):
            held[one.labels] = value
    return held


def fired(rule: dict[str, Any], all_series: list[Series], at_s: int) -> dict[Labels, float]:
    """Return the series for which a rule fires: its expression has held for so long, without a break."""
    since: dict[Labels, int] = {}
    held: dict[Labels, float] = {}
    for now_s in range(0, at_s + 1, 60):
        held = evaluate(rule["expr"], all_series, now_s)
        since = {labels: since.get(labels, now_s) for labels in held}
    wait_s = seconds(rule.get("for", "0s"))
    return {labels: value for labels, value in held.items() if at_s - since[labels] >= wait_s}


def filled(template: str, labels: dict[str, str], value: float) -> str:
    """Return an annotation with its labels and value."""
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda name: labels.get(name[1], ""), template)
    text = re.sub(r'\{\{ printf "%\.0f" \$value \}\}', f"{value:.0f}", text)
    assert "{{" not in text, text
    return text


@pytest.mark.parametrize(
    ("index", "check"), CHECKS, ids=lambda one: one["alertname"] if isinstance(one, dict) else None
)
def test_each_alert_rule_gives_exactly_the_alerts_expected_in_each_test_case(index: int, check: dict[str, Any]) -> None:
    """Before its time a rule wakes people for nothing, and one that never fires is a false comfort."""
    case = CASES[index]
    all_series = [Series.parse(one["series"], one["values"], seconds(case["interval"])) for one in case["input_series"]]
    rule = RULES[check["alertname"]]
    found = []
    for series_labels, value in fired(rule, all_series, seconds(check["eval_time"])).items():
        labels = dict(series_labels) | rule["labels"]
        told = {name: filled(text, labels, value) for name, text in rule["annotations"].items()}
        found.append({"exp_labels": labels, "exp_annotations": told})
    assert found == check["exp_alerts"]


def test_every_alert_rule_has_a_test_case_with_an_alert_and_a_test_case_without_an_alert() -> None:
    """A rule without a case of each kind is not tested."""
    for name in RULES:
        outcomes = {bool(check["exp_alerts"]) for _, check in CHECKS if check["alertname"] == name}
        assert outcomes == {True, False}, name


def test_alert_rules_use_existing_metrics_and_labels() -> None:
    """A rule over a metric or a label that does not exist never fires, and nobody notices."""
    for name, rule in RULES.items():
        asked = re.findall(r"((?:rocketmq|flintmq)_\w+)(?:\{([^}]*)\})?", rule["expr"])
        assert asked or "up{" in rule["expr"], name
        for metric, selector in asked:
            labels = {*FAMILIES[metric].common, *FAMILIES[metric].labels}
            used = set(re.findall(r"(\w+)=", selector)) | set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
            assert used <= labels | {"instance"}, f"{name}: {used - labels}"


def test_promtool_accepts_the_alert_rules_and_their_test_cases() -> None:
    """Prometheus' own judge, of syntax and of the same cases."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    for words in (("check", "rules", RULES_FILE), ("test", "rules", CASES_FILE)):
        done = subprocess.run([promtool, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
