"""The mistakes that authors of plugins make most stop a start with an error that says what is wrong, where, and what is right.

The plugins are installed: each is found by its entry point.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import flintmq

Install = Callable[..., None]
HEADER = "from flintmq.core.kernel.hookspecs import hookimpl\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that puts a distribution on the path; its module is forgotten after the test."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    names: list[str] = []

    def put(name: str, body: str, entry_point: str = "") -> None:
        (site / f"{name}.py").write_text(HEADER + body, encoding="utf-8")
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        points = f"[flintmq]\n{name} = {entry_point or name}\n"
        (info / "entry_points.txt").write_text(points, encoding="utf-8")
        names.append(name)

    yield put
    for name in names:
        sys.modules.pop(name, None)


def refusal(tmp_path: Path, *more: str) -> str:
    """Return why a broker with further settings does not start."""
    settings = [f"store.path={tmp_path / 'store'}", "listen.port=0", "listen.vip=false", *more]
    with pytest.raises(flintmq.FlintError) as refused, flintmq.Broker(flintmq.load_config(None, settings, {})):
        raise AssertionError("the broker has started")
    return str(refused.value)


def test_the_error_about_an_unknown_hook_suggests_the_right_name(install: Install, tmp_path: Path) -> None:
    """pluggy alone would never call the function."""
    install("bills", "@hookimpl\ndef flintmq_dispatcher(register): ...\n")
    assert re.fullmatch(
        r"plugin 'bills' \(entry point, bills 1\.0\): there is no hook 'flintmq_dispatcher'; "
        r"did you mean 'flintmq_dispatchers'\?",
        refusal(tmp_path),
    )


@pytest.mark.parametrize(
    ("body", "expected", "found"),
    [
        (
            "@hookimpl\ndef flintmq_dispatchers(registry): ...\n",
            "flintmq_dispatchers(register), with these parameter names",
            "flintmq_dispatchers(registry); did you mean 'register'?",
        ),
        (
            "@hookimpl\ndef flintmq_dispatchers(register): register('bills', print, essentail=True)\n",
            "register(name, factory, *, essential=False)",
            "register('bills', <built-in function print>, essentail=True): got an unexpected keyword argument 'essentail'",
        ),
    ],
    ids=["of the hook", "of register"],
)
def test_the_error_about_a_wrong_hook_argument_shows_the_expected_call(
    install: Install, tmp_path: Path, body: str, expected: str, found: str
) -> None:
    """Hooks are called by name."""
    install("bills", body)
    said = refusal(tmp_path)
    assert said == (f"plugin 'bills' (entry point, bills 1.0): flintmq_dispatchers: expected {expected}; found {found}")


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ("None", "None"),
        ("Bills", "the class Bills"),
        ("Bills()", "a Bills without 'dispatch'"),
    ],
)
def test_an_unusable_object_made_by_a_plugin_factory_is_named_in_the_error(
    install: Install, tmp_path: Path, made: str, found: str
) -> None:
    """The mistake must be found at the start, because otherwise the first message would fail."""
    body = (
        f"class Bills: ...\n@hookimpl\ndef flintmq_dispatchers(register): register('bills', lambda context: {made})\n"
    )
    install("bills", body)
    said = refusal(tmp_path, "dispatchers=consume_queue,bills")
    where = "plugin 'bills' (entry point, bills 1.0): flintmq_dispatchers: the dispatcher 'bills' cannot be used"
    assert said.startswith(f"{where}: its factory made {found}; expected ")
    assert "dispatch(batch)" in said


@pytest.mark.parametrize(
    ("body", "entry_point", "said"),
    [
        ("import bill_templates\n", "", "'bills' needs a module that is missing: No module named 'bill_templates'"),
        ("", "bills_plugin", "there is no module 'bills_plugin': install it, or name its folder in PYTHONPATH"),
        ("", "bills:plugin", "'bills' has no 'plugin'"),
    ],
    ids=["dependency", "module of the entry point", "object of the entry point"],
)
def test_the_error_about_a_failed_plugin_import_names_the_distribution(
    install: Install, tmp_path: Path, body: str, entry_point: str, said: str
) -> None:
    """No hook is known yet: the error names the distribution, which is what has to be mended."""
    install("bills", body, entry_point)
    assert refusal(tmp_path).startswith(f"plugin 'bills' (entry point, bills 1.0): {said}")


def test_a_request_code_registered_by_two_plugins_is_refused_with_both_plugin_names(
    install: Install, tmp_path: Path
) -> None:
    """A built-in processor's code may be taken over by one plugin, not by two."""
    body = "@hookimpl\ndef flintmq_request_processors(register): register('NAME', (10, 30_000), print)\n"
    install("bills", body.replace("NAME", "bill"))
    install("taxes", body.replace("NAME", "tax"))
    assert re.fullmatch(
        r"plugin 'taxes' \(entry point, taxes 1\.0\): flintmq_request_processors: the request processor 'tax': expected "
        r"codes that no other plugin's processor answers; found 10, which 'bills/bill' answers: "
        r"list 'bills' or 'taxes' in 'disabled_plugins'",
        refusal(tmp_path),
    )
