"""Failures are counted for the plugin whose code raised: whoever reads the name must look into the right package."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from flintmq.config.sections.service import PluginBudgetSection
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.accounts import Account, Ledger
from flintmq.core.kernel.blame import Blame, brief
from flintmq.core.kernel.isolation import Accountable, IsolatedDispatcher
from flintmq.core.kernel.plugin_info import PluginOrigin, PluginSource
from flintmq.core.kernel.plugin_shapes import INDEX_BUILDER
from flintmq.testing.clock import ManualClock
from flintmq.testing.dispatcher_kit import sample_batch

HOUSE = PluginOrigin("house", PluginSource.BUILT_IN)
A = PluginOrigin("a", PluginSource.ENTRY_POINT, "a 1.0")
B = PluginOrigin("b", PluginSource.CONFIGURATION, "broker.yaml:3")
MINE = PluginOrigin("Mine", PluginSource.PROGRAM)

FAILS = """
class Fails:
    def dispatch(self, batch):
        raise ValueError("no")
class Calls:
    def __init__(self, inner):
        self.inner = inner
    def dispatch(self, batch):
        self.inner.dispatch(batch)
class Other:
    def dispatch(self, batch):
        helper()
def helper():
    raise KeyError("helper")
def exits(*arguments):
    raise SystemExit(3)
"""


@pytest.fixture
def modules() -> Iterator[Any]:
    """Makes modules of a name with :data:`FAILS` in them."""
    made: list[str] = []

    def make(name: str) -> Any:
        module = types.ModuleType(name)
        exec(compile(FAILS, f"{name}.py", "exec"), module.__dict__)
        sys.modules[name] = module
        made.append(name)
        return module

    yield make
    for name in made:
        del sys.modules[name]


def isolated(blame: Blame, dispatcher: Any, owner: PluginOrigin) -> IsolatedDispatcher:
    return IsolatedDispatcher(dispatcher, account_of(blame, owner), essential=False, blame=blame, name="d")


def account_of(blame: Blame, owner: PluginOrigin) -> Account:
    ledger = Ledger(blame, ManualClock(), PluginBudgetSection())
    return ledger.of(owner, "flintmq_dispatchers", "dispatcher 'd'", limited=True, until_restart=True)


def counts(blame: Blame) -> dict[str, int]:
    return {owner.name: blame.errors(owner) for owner in (HOUSE, A, B, MINE) if blame.errors(owner)}


def test_whose_code_raised_is_named_not_who_called_it(modules: Any) -> None:
    """One plugin's dispatcher wraps another's."""
    blame = Blame()
    a, b = modules("pkg_a.dispatch"), modules("pkg_b.dispatch")
    blame.code.add(A, a)
    blame.code.add(B, b)
    isolated(blame, a.Calls(b.Fails()), A).dispatch(sample_batch(1))
    assert counts(blame) == {"b": 1}
    assert blame.last_error(B) == "dispatcher 'd' (dispatch) of a: ValueError: no"
    isolated(blame, a.Fails(), B).dispatch(sample_batch(1))
    assert counts(blame) == {"a": 1, "b": 1}


def test_a_built_in_that_raises_because_of_a_third_partys_callback_is_not_named(modules: Any) -> None:
    blame = Blame()
    a = modules("pkg_a.callbacks")
    blame.code.add(A, a.Other)

    class BuiltIn:
        def dispatch(self, batch: object) -> None:
            try:
                a.Other().dispatch(batch)
            except KeyError as error:
                raise RuntimeError("the index cannot go on") from error

    isolated(blame, BuiltIn(), HOUSE).dispatch(sample_batch(1))
    assert counts(blame) == {"a": 1}


def test_code_of_the_same_package_is_the_plugins(modules: Any) -> None:
    """A plugin is announced in one module, and does its work in others."""
    blame = Blame()
    blame.code.add(A, modules("pkg_a.plugin"))
    inner = modules("pkg_a.writer.files")
    isolated(blame, inner.Other(), HOUSE).dispatch(sample_batch(1))
    assert counts(blame) == {"a": 1}


def test_plugins_that_share_a_module_are_told_apart_by_their_classes(modules: Any) -> None:
    blame = Blame()
    shared = modules("shared")
    blame.code.add(A, shared.Fails)
    blame.code.add(B, shared.Other)
    isolated(blame, shared.Fails(), B).dispatch(sample_batch(1))
    assert counts(blame) == {"a": 1}
    isolated(blame, shared.Other(), B).dispatch(sample_batch(1))
    assert counts(blame) == {"a": 1, "b": 1}, "the helper is nobody's: who was called is"


def test_a_programs_own_modules_are_not_all_a_plugin(modules: Any) -> None:
    """A program that embeds a broker hands over an object; what else is in its module is the program's."""
    blame = Blame()
    program = modules("program")
    blame.code.add(MINE, program.Fails())
    assert blame.code.owner_of("program", "main") is None
    assert blame.code.owner_of("program", "Fails.dispatch") == MINE
    isolated(blame, program.Other(), HOUSE).dispatch(sample_batch(1))
    assert counts(blame) == {"house": 1}


def test_the_log_has_one_trace_and_then_counts(modules: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A plugin that fails with each of a million messages must not fill a disk."""
    blame = Blame()
    for number in range(1_000):
        blame.note(A, "filter 'x'", ValueError(f"no {number}"))
    lines = [record for record in caplog.records if record.name == "flintmq.plugins"]
    assert len(lines) == 4
    assert [bool(record.exc_info) for record in lines] == [True, False, False, False]
    assert "for the 1000th time: ValueError: no 999" in lines[-1].getMessage()
    assert blame.errors(A) == 1_000


def test_the_ways_to_fail_that_are_told_apart_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    blame = Blame()
    for number in range(3_000):
        blame.note(A, f"place {number}", ValueError())
    assert len(caplog.records) == 1_000
    assert blame.errors(A) == 3_000


def test_errors_that_cannot_be_shown_are_shown() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert brief(Mute()) == "Mute: (its text cannot be made)"
    assert brief(ValueError("a\nb\x07" + "x" * 9_000)).startswith("ValueError: a b\\x07xxx")
    assert len(brief(ValueError("x" * 9_000))) < 600
    assert brief(KeyError()) == "KeyError"


def test_sys_exit_in_a_plugin_is_a_failure_like_any_other(modules: Any) -> None:
    """It must not end the broker."""
    blame = Blame()
    a = modules("pkg_a.exits")
    dispatcher = types.SimpleNamespace(dispatch=a.exits)
    isolated(blame, dispatcher, A).dispatch(sample_batch(0))
    assert counts(blame) == {"a": 1}
    with pytest.raises(RuntimeError, match="dispatch called sys"):
        Accountable(dispatcher, INDEX_BUILDER, "somebody", account_of(blame, A), lambda method, error: None).dispatch(
            sample_batch(0)
        )


def test_why_a_dispatcher_is_off_is_told() -> None:
    blame = Blame()

    class Fails:
        def dispatch(self, batch: object) -> None:
            raise OSError("disk of its own is full")

    dispatcher = isolated(blame, Fails(), A)
    for _ in range(PluginBudgetSection().errors):
        assert dispatcher.why_disabled == ""
        dispatcher.dispatch(sample_batch(0))
    assert dispatcher.disabled
    assert dispatcher.why_disabled == (
        "failed 5 times in 60 s, the last time in dispatcher 'd' (dispatch): OSError: disk of its own is full"
    )


def test_what_is_raised_on_is_counted_once_and_refusals_never() -> None:
    """An index builder raises through the dispatcher that calls it: one failure, not two."""
    blame = Blame()

    class Builder:
        size = 7

        def dispatch(self, batch: object) -> None:
            raise ValueError("no")

        def query(self) -> None:
            raise RefusedError(1, "not now", reason="a.b")

    builder = Accountable(
        Builder(),
        INDEX_BUILDER,
        "somebody",
        account_of(blame, A),
        lambda method, error: blame.note(A, method, error, raised_on=True),
    )

    class Index:
        def dispatch(self, batch: object) -> None:
            builder.dispatch(batch)

    isolated(blame, Index(), HOUSE).dispatch(sample_batch(0))
    assert counts(blame) == {"a": 1}
    with pytest.raises(RefusedError):
        builder.query()
    assert counts(blame) == {"a": 1}
    assert builder.size == 7
    assert not hasattr(builder, "close")
