"""Whoever is refused learns why, in a form that programs can rely on: a stable id, what was measured, the key to change."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import flintmq
from flintmq.config.loading.schema import KEYS
from flintmq.core import errors
from flintmq.core.errors import FlintError, RefusedError, StoreError
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.wire.refusal import refusal_of

ROOT = Path(str(flintmq.__file__)).resolve().parent
REASON = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
DOTTED = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")


sys.path.insert(0, str(ROOT / "tools"))

import refusals  # noqa: E402


@pytest.fixture(scope="module")
def found() -> list[refusals.Refusal]:
    """Return every refusal of the checkout, searched once."""
    return refusals.refusals(ROOT)


def test_each_refusal_in_the_source_code_has_a_valid_reason_id_written_as_a_literal(
    found: list[refusals.Refusal],
) -> None:
    """A literal one: an id that is put together can be neither searched for nor promised."""
    assert len(found) > 100, "the search finds nothing any more"
    assert [one.place for one in found if one.reason is None or REASON.fullmatch(one.reason) is None] == []


def test_each_setting_mentioned_by_the_error_of_a_refused_request_exists(found: list[refusals.Refusal]) -> None:
    """A renamed key would send operators to a setting that does not exist."""
    wrong = []
    for one in found:
        named = DOTTED.match(one.key)
        if named is not None and named.group() not in KEYS and not named.group().startswith("admission."):
            wrong.append((one.place, one.key))
    assert wrong == []


def _tree(root: type[Exception]) -> list[type[Exception]]:
    return [root, *(below for one in root.__subclasses__() for below in _tree(one))]


class ThirdPartyError(StoreError):
    """A plugin's own."""


OURS = [kind for kind in _tree(FlintError) if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", [*OURS, ThirdPartyError, ValueError, MemoryError], ids=lambda kind: kind.__name__)
def test_every_exception_raised_by_a_processor_becomes_an_error_response_with_a_reason_id(
    kind: type[Exception],
) -> None:
    """A processor may raise errors of ``core/errors.py``, errors of plugins, and unexpected exceptions."""
    error = (
        RefusedError(ResponseCode.NO_PERMISSION, "no", reason="a.b", measured="3 x", key="k.l")
        if kind is RefusedError
        else kind("what was wrong")
    )
    refused = refusal_of(error)
    assert refused.code > 0
    assert REASON.fullmatch(refused.reason)
    assert re.search(r" \[[^\[\]]+\]$", refused.remark), refused.remark
    if kind is RefusedError:
        assert refused.remark == "no [a.b; measured 3 x; see k.l]"
    else:
        assert "what was wrong" in refused.remark


def test_the_diagram_in_the_docstring_of_errors_py_shows_all_error_classes() -> None:
    """The drawing at the top of ``core/errors.py`` is the first thing a reader sees."""
    drawn = set(re.findall(r"(?:FlintError|[├└]── (\w+))", errors.__doc__ or "")) - {""}
    assert drawn == {kind.__name__ for kind in OURS} - {"FlintError"}
