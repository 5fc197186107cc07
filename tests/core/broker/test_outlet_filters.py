"""A filter is compiled once however many pulls bring its expression, and refused as soon as it may not be used any more."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.broker.outlet import SubscriptionFilters
from flintmq.core.broker.subscription import build_subscription
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import MessageFilter
from flintmq.core.limits import FILTER_EXPRESSION_MAX_BYTES
from flintmq.plugins.filters.plugin import tag_filter
from flintmq.plugins.filters.sql92 import sql92_filter
from flintmq.tests.support.state import state_of


class Backing:
    """A service with bit maps: returns the filter that it is asked to back in a list."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, str]] = []

    def backed(self, topic: str, group: str, expression_type: str, made: MessageFilter, expression: str) -> Any:
        self.asked.append((topic, group, expression_type, expression))
        return [made]


class Filters:
    """Compiled filters, the expressions that were compiled, and the broker's services."""

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.services: list[Any] = []
        factories = {"TAG": self.counted(tag_filter), "SQL92": self.counted(sql92_filter)}
        self.state = state_of(filters=factories, services=lambda: self.services)
        self.allow(True)
        self.filters = SubscriptionFilters(self.state)

    def counted(self, factory: Any) -> Any:
        """A factory that notes the expressions."""

        def make(expression: str, codes: frozenset[int]) -> MessageFilter:
            self.compiled.append(expression)
            made: MessageFilter = factory(expression, codes)
            return made

        return make

    def allow(self, allowed: bool) -> None:
        """Switch SQL92 on or off."""
        config = BrokerConfig()
        self.state.config = attrs.evolve(config, pull=attrs.evolve(config.pull, property_filter=allowed))

    def of(self, expression: str, kind: str = "SQL92") -> Any:
        """The filter of a subscription of the group ``G``."""
        return self.filters.of(build_subscription("T", expression, kind), "G")


def test_a_filter_expression_used_by_many_pulls_is_compiled_once() -> None:
    """Tag expressions are cached too; a subscription to all messages has no filter."""
    made = Filters()
    assert made.of("a > 1") is made.of("a > 1") is not made.of("a > 2")
    assert made.of("A || B", "TAG") is made.of("A || B", "TAG")
    assert made.of("*", "TAG") is None
    assert made.compiled == ["a > 1", "a > 2", "A || B"]


def test_the_cache_of_compiled_filters_contains_at_most_1024_filters() -> None:
    """Clients choose the expressions, so neither many nor long ones may fill the memory."""
    made = Filters()
    for number in range(1024):
        made.of(f"a > {number}")
    made.of("a > 0")
    assert len(made.compiled) == 1024
    made.of("a > 1024")
    made.of("a > 0")
    assert made.compiled[-2:] == ["a > 1024", "a > 0"]
    long = " || ".join(f"T{number}" for number in range(FILTER_EXPRESSION_MAX_BYTES // 4))
    made.of(long, "TAG")
    made.of(long, "TAG")
    assert made.compiled[-2:] == [long, long]


def test_a_compiled_sql92_filter_is_refused_after_sql92_is_switched_off() -> None:
    """RocketMQ looks at its setting with each pull."""
    made = Filters()
    made.of("a > 1")
    made.allow(False)
    with pytest.raises(RefusedError) as refused:
        made.of("a > 1")
    assert refused.value.reason == "filter.off"
    with pytest.raises(RefusedError) as refused:
        made.of("a", "REGEX")
    assert (refused.value.reason, refused.value.measured) == ("filter.unknown", "types that have a filter: SQL92, TAG")
    assert made.of("A", "TAG").matches_tags_code(65)


def test_sql92_filters_but_not_tag_filters_use_the_precomputed_bit_maps_of_their_consumer_group() -> None:
    """The service is made after the state of the broker; tag filters do not use it."""
    made, backing = Filters(), Backing()
    plain = made.of("a > 1")
    made.services.append(backing)
    assert made.of("a > 1") == [plain]
    assert made.of("A", "TAG").matches_tags_code(65)
    assert backing.asked == [("T", "G", "SQL92", "a > 1")]
