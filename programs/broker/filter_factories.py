"""Makes the factories of message filters, and counts errors of third parties' filters for their plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.core.errors import PluginError, RefusedError
from flintmq.core.kernel.failures import PLUGIN_FAULTS, brief
from flintmq.core.kernel.hookspecs import PluginContext
from flintmq.core.kernel.isolation import IsolatedBitMapFilter, IsolatedFilter
from flintmq.core.kernel.plugin_shapes import FILTER, shown, wrong_call
from flintmq.core.kernel.ports import BitMapFilter, MessageFilter, MessageFilterFactory
from flintmq.core.log_events import event_log
from flintmq.core.response_code import ResponseCode

if TYPE_CHECKING:
    from flintmq.core.kernel.kernel import Kernel

_LOG = event_log("flintmq.plugins")


def filter_factory(kernel: Kernel, expression_type: str) -> MessageFilterFactory:
    """Return the factory of the filters of an expression type.

    If a third party's filter raises an error, the error is counted for the filter's plugin, and the message does not match.

    Raises:
        PluginError: no plugin registered the type, or a third party's factory returns an object that is not a filter. To check
            this, the factory is called once with the expression ``*``. It is not an error if the factory refuses this
            expression.
    """
    registered = kernel.registries.filters.pick(expression_type)
    factory = kernel.make(registered, registered.value, kernel.context(registered, PluginContext))
    # A built-in filter is not checked, because the check calls the factory, which would import the filter's module.
    # A built-in filter's module should be imported only at the first subscription of the filter's type.
    if registered.owner.built_in:
        return factory
    wrong = wrong_call(factory, ("expression", "codes"))
    if wrong:
        raise PluginError(
            f"{FILTER.where(registered.owner, registered.name)} cannot be used: its factory made {shown(factory)}; "
            f"expected a plain function, called as make(expression, codes); found {wrong}"
        )
    part = kernel.part(registered)

    def make(expression: str, codes: frozenset[int]) -> MessageFilter:
        part.check()
        try:
            made = factory(expression, codes)
            FILTER.check_made(registered.owner, registered.name, made)
        except RefusedError:
            raise
        except PLUGIN_FAULTS as error:
            part.failed(error, "its factory")
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: the filter {registered.name} could not process the expression",
                reason="filter.failed",
            ) from error
        return IsolatedBitMapFilter(made, part) if isinstance(made, BitMapFilter) else IsolatedFilter(made, part)

    try:
        probe = factory("*", frozenset())
    except PLUGIN_FAULTS as error:
        _LOG.debug(
            "filter.not_made",
            "%(plugin)s: %(what)s makes no filter of '*': %(error)s",
            plugin=registered.owner,
            what=registered.what,
            error=brief(error),
        )
    else:
        FILTER.check_made(registered.owner, registered.name, probe)
    return make
