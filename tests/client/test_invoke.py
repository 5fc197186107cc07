"""A request of any code is asked in one call, on asyncio and without."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flintmq.client import AdminClient, InvalidArgumentError, RefusedError, sync
from flintmq.remoting.wire.codes import RequestCode


def test_the_answer_returned_by_admin_client_invoke_has_response_code_and_body_and_header_fields(
    name_server: str,
) -> None:
    with sync.AdminClient(name_server) as admin:
        (address,) = admin.masters().values()
        answer = admin.invoke(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        assert answer.code == 0
        assert b"brokerVersionDesc" in answer.body
        route = admin.invoke(name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
        assert b"brokerDatas" in route.body
        offset = admin.invoke(address, RequestCode.GET_MAX_OFFSET, {"topic": "TBW102", "queueId": 0})
        assert offset.ext_fields == {"offset": "0"}


def test_the_asynchronous_admin_client_sends_a_request_and_returns_the_response(name_server: str) -> None:
    async def main() -> None:
        async with AdminClient(name_server) as admin:
            answer = await admin.invoke(name_server, RequestCode.GET_BROKER_CLUSTER_INFO, timeout_ms=5_000)
            assert b"clusterAddrTable" in answer.body

    asyncio.run(main())


def test_the_admin_client_raises_an_error_for_a_response_code_that_the_caller_does_not_accept(name_server: str) -> None:
    with sync.AdminClient(name_server) as admin:
        with pytest.raises(RefusedError) as refused:
            admin.invoke(name_server, 29_999)
        answer = admin.invoke(name_server, 29_999, accepted=[refused.value.code])
        assert answer.code == refused.value.code == 3
        assert "29999" in (answer.remark or "")


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"code": -1}, "code is -1, and must be a number from 0 to 32767"),
        ({"code": "28"}, "code is '28'"),
        ({"code": 1 << 15}, "code is 32768"),
        ({"code": 28, "body": "text"}, "body is 'text', and must be bytes"),
        ({"code": 28, "fields": {"a": 1.5}}, r"field 'a' is 1\.5, and must be a text or a number"),
        ({"code": 28, "fields": {1: "a"}}, "field 1 is 'a'"),
    ],
)
def test_admin_client_invoke_refuses_invalid_arguments(name_server: str, asked: dict[str, Any], match: str) -> None:
    with sync.AdminClient(name_server) as admin, pytest.raises(InvalidArgumentError, match=match):
        admin.invoke(name_server, **asked)
