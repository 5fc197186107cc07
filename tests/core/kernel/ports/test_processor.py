"""Everything that is known of a request code follows from the declaration beside its handler."""

from __future__ import annotations

import pytest

from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports.access import ACCOUNT, ADMIN
from flintmq.core.kernel.ports.processor import (
    DeclaredProcessor,
    Request,
    RequestDeclaration,
    Response,
    declared_by,
    handles,
)
from flintmq.core.response_code import ONEWAY_FLAG
from flintmq.remoting.wire.headers_message import ConsumerGroupRequestHeader


class Paint(DeclaredProcessor):
    """Two handlers, one of them for two codes."""

    @handles(20_001, header=ConsumerGroupRequestHeader, pool="query", needs=ADMIN, audited=True)
    def mix(self, request: Request) -> Response:
        """Mix a colour
        of two.

        What follows is not the summary.
        """
        return Response(body=b"mixed")

    @handles(20_002, needs=ACCOUNT)
    @handles(20_003)
    def look(self, request: Request) -> Response:
        return Response(remark=str(request.code))


class Spray(Paint):
    """A handler that replaces the parent's."""

    @handles(20_004)
    def look(self, request: Request) -> Response:
        """Spray instead."""
        return Response(remark="sprayed")


def asked(code: int, ext_fields: dict[str, str] | None = None, flag: int = 0) -> Request:
    """A request that came by no connection."""
    return Request(None, code, 1, flag, 0, "JAVA", 0, ext_fields, b"")  # type: ignore[arg-type]


def test_the_declaration_of_a_request_code_has_a_header_class_and_a_thread_pool_and_an_access_rule() -> None:
    """In the order of definition, with the first paragraph of the docstring in one line."""
    mix, *look = declared_by(Paint)
    assert mix == RequestDeclaration(
        20_001, ConsumerGroupRequestHeader, None, "query", ADMIN, True, "Mix a colour of two."
    )
    assert [(one.code, one.pool, one.needs, one.audited, one.summary) for one in look] == [
        (20_002, "admin", ACCOUNT, False, ""),
        (20_003, "admin", None, False, ""),
    ]


def test_a_handler_method_handles_all_request_codes_that_it_declares() -> None:
    """A code that is declared but not handled would leave its clients without an answer."""
    handlers = Paint().handlers()
    assert sorted(handlers) == [20_001, 20_002, 20_003]
    answer = handlers[20_003](asked(20_003))
    assert isinstance(answer, Response)
    assert answer.remark == "20003"


def test_an_override_of_a_handler_method_does_not_inherit_the_request_codes_of_the_parent_method() -> None:
    """The codes of the parent would otherwise name a handler that no longer exists."""
    assert [one.code for one in declared_by(Spray)] == [20_001, 20_004]
    assert sorted(Spray().handlers()) == [20_001, 20_004]


def test_a_plugin_handler_inherits_the_access_rule_of_the_built_in_handler_that_it_replaces() -> None:
    """A plugin that replaces a built-in handler must not open the code to everybody."""
    built_in = RequestDeclaration(17, ConsumerGroupRequestHeader, needs=ADMIN, audited=True)
    taken = RequestDeclaration(17, pool="mine").under(built_in)
    assert taken == RequestDeclaration(17, ConsumerGroupRequestHeader, pool="mine", needs=ADMIN, audited=True)
    own = RequestDeclaration(17, needs=ACCOUNT)
    assert own.under(built_in) is own


def test_a_request_header_is_decoded_into_the_requested_header_class() -> None:
    """A missing field refuses the request; a header that was decoded with the frame is not decoded again."""
    assert asked(1, {"consumerGroup": "G"}).header(ConsumerGroupRequestHeader).consumer_group == "G"
    with pytest.raises(RefusedError, match="consumerGroup"):
        asked(1, {}).header(ConsumerGroupRequestHeader)
    request = asked(1)
    request.typed = typed = ConsumerGroupRequestHeader(consumer_group="G")
    assert request.header(ConsumerGroupRequestHeader) is typed


def test_the_is_oneway_attribute_of_a_request_equals_the_oneway_flag_in_its_header() -> None:
    """Its answer would reach a client that waits for none."""
    assert asked(1, flag=ONEWAY_FLAG).is_oneway
    assert not asked(1).is_oneway
