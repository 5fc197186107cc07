"""A third party's filter that cannot be made refuses its own expression, and is counted for its plugin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flintmq.core.errors import PluginError, RefusedError
from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.plugin_shapes import FILTER
from flintmq.plugins.builtin import BUILTIN_PLUGINS
from flintmq.programs.broker.filter_factories import filter_factory
from flintmq.programs.broker.processors import ProcessorsPlugin


def kernel_with(make: Callable[[str, frozenset[int]], object]) -> Kernel:
    """A kernel with one third party's plugin, whose filters of the type ``MINE`` are made by a function."""

    class Plugin:
        plugin_name = "mine"

        @hookimpl
        def flintmq_message_filters(self, register: Any) -> None:
            register("MINE", lambda context: make)

    return Kernel.assemble((), (), objects=(Plugin(),), use_entry_points=False)


def test_the_built_in_filter_factories_return_objects_with_the_filter_interface() -> None:
    """They are made late, for the first consumer that asks."""
    kernel = Kernel.assemble((), (*BUILTIN_PLUGINS, ProcessorsPlugin()), use_entry_points=False)
    for name, expression in (("TAG", "a || b"), ("SQL92", "a > 5")):
        FILTER.check_made(kernel.describe()[0].origin, name, filter_factory(kernel, name)(expression, frozenset()))


def test_a_filter_expression_is_refused_and_an_error_is_counted_if_its_filter_factory_raises() -> None:
    def make(expression: str, codes: frozenset[int]) -> object:
        raise KeyError(expression)

    kernel = kernel_with(make)
    factory = filter_factory(kernel, "MINE")
    assert kernel.describe()[0].errors == 0, "it may refuse the expression '*' as it likes"
    with pytest.raises(RefusedError, match="the filter MINE could not process the expression") as refused:
        factory("a", frozenset())
    assert refused.value.reason == "filter.failed"
    assert kernel.describe()[0].errors == 1


def test_a_plugin_error_is_raised_if_a_filter_factory_returns_an_object_that_is_no_filter() -> None:
    kernel = kernel_with(lambda expression, codes: 7)
    with pytest.raises(PluginError, match=r"plugin 'mine' .*'MINE' cannot be used: its factory made .*int"):
        filter_factory(kernel, "MINE")
