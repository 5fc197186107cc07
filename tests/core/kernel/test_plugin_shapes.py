"""The table of what plugins hand over must say what the ports say: a start that refuses what is right is worse than none."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from flintmq.core.kernel import ports
from flintmq.core.kernel.hookspecs import FlintSpecs
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.plugin_shapes import (
    AUTHENTICATOR,
    DEFAULT_PROCESSOR,
    DISPATCHER,
    FILTER,
    FLUSH_STRATEGY,
    INDEX_BUILDER,
    POOL,
    SERVICE,
    Shape,
    shown,
    wrong_call,
)
from flintmq.core.kernel.ports.processor import DefaultProcessor
from flintmq.core.kernel.registries import Registries
from flintmq.plugins.builtin import BUILTIN_PLUGINS
from flintmq.programs.broker.processors import ProcessorsPlugin


def methods_of(*protocols: type) -> dict[str, Any]:
    """The methods of ports, by name."""
    return {
        name: method
        for protocol in protocols
        for name, method in inspect.getmembers(protocol, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("shape", "needed", "optional"),
    [
        (
            DISPATCHER,
            ports.CommitLogDispatcher,
            (
                ports.SupportsCommitted,
                ports.SupportsCatchUp,
                ports.SupportsTruncate,
                ports.SupportsClose,
            ),
        ),
        (FLUSH_STRATEGY, ports.FlushCommitLogService, (ports.SupportsFlushSoon,)),
        (POOL, ports.TransientStorePool, ()),
        (
            INDEX_BUILDER,
            ports.IndexBuilder,
            (
                ports.SupportsCommitted,
                ports.SupportsCommittedBelow,
                ports.SupportsTruncate,
                ports.SupportsDeleteBefore,
            ),
        ),
        (FILTER, ports.MessageFilter, (ports.BitMapFilter,)),
        (AUTHENTICATOR, ports.Authenticator, (ports.SupportsClose,)),
        (SERVICE, ports.Service, ports.OPTIONAL_OF_SERVICES),
        (DEFAULT_PROCESSOR, DefaultProcessor, ()),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_the_required_methods_of_a_plugin_object_are_the_methods_of_its_interface(
    shape: Shape, needed: type, optional: tuple[type, ...]
) -> None:
    assert dict(shape.methods) == methods_of(needed)
    assert {**shape.methods, **shape.optional} == {**methods_of(*optional), **shape.methods}


@pytest.mark.parametrize(
    ("made", "wrong"),
    [
        (lambda self, request: None, ""),
        (lambda self: None, "expected handle(request), plain or 'async def'; found "),
    ],
)
def test_a_default_request_processor_without_a_valid_handle_method_is_refused(made: Any, wrong: str) -> None:
    kind = type("Odd", (), {"handle": made})
    said = DEFAULT_PROCESSOR._wrong(kind())
    assert said.startswith(f"a Odd; {wrong}") if wrong else not said


def test_objects_that_plugins_register_are_checked_in_every_registration_hook() -> None:
    registering = {name for name in vars(FlintSpecs) if name.startswith("flintmq_")}
    hooks = {registry.shape.hook for registry in vars(Registries()).values()}
    assert hooks <= registering
    assert {
        hook for hook in registering if "register" in inspect.signature(getattr(FlintSpecs, hook)).parameters
    } == hooks


class AsyncCall:
    async def __call__(self, one: object) -> None: ...


def _wraps(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function("first", *arguments)

    return wrapper


@pytest.mark.parametrize(
    "function",
    [
        print,
        len,
        lambda one: None,
        lambda *arguments: None,
        lambda one, two=2, *, three=3: None,
        functools.partial(lambda zero, one: None, 0),
        _wraps(lambda first, one: None),
        list.append.__get__([]),  # type: ignore[attr-defined]
        AsyncCall,
    ],
    ids=lambda function: type(function).__name__,
)
def test_callables_that_accept_the_arguments_of_a_hook_are_accepted(function: Any) -> None:
    """However it is written: a decorator's signature counts, not that of what it stands before."""
    assert wrong_call(function, ("one",)) == "" or function is AsyncCall


@pytest.mark.parametrize(
    "function",
    [
        None,
        5,
        lambda: None,
        lambda one, two: None,
        lambda one, *, key: None,
        AsyncCall(),
        functools.partial(AsyncCall()),
    ],
    ids=lambda function: type(function).__name__,
)
def test_callables_that_do_not_accept_the_arguments_of_a_hook_are_refused(function: Any) -> None:
    assert wrong_call(function, ("one",))


def test_error_texts_show_any_object_in_one_short_line() -> None:
    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError

    assert shown(Mute()) == "a Mute"
    assert shown("a\nb") == "'a\\nb'"
    assert len(shown("x" * 9_000)) < 200
    assert "0x" not in shown(object())


def test_built_in_plugins_pass_the_checks_that_apply_to_third_party_plugins() -> None:
    """A start does not check them, so a mistake in one of them must be found here."""
    kernel = Kernel.assemble((), (), objects=(*BUILTIN_PLUGINS, ProcessorsPlugin()), use_entry_points=False)
    assert not any(plugin.origin.built_in for plugin in kernel.describe())
