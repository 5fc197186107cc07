"""A name server takes its processors through the hook, a plugin's among them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from flintmq.config import BrokerConfig, NamesrvConfig
from flintmq.core.kernel.hookspecs import RegisterProcessor, hookimpl
from flintmq.core.kernel.ports.access import ACCOUNT
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, declared_by, handles
from flintmq.programs.name_server.name_server import NameServer
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request

GREET = 20_001
LOCAL = NamesrvConfig(host="127.0.0.1", port=0)


class Greeter(DeclaredProcessor):
    """Answers one code, and one in place of a built-in."""

    @handles(GREET, needs=ACCOUNT)
    def greet(self, request: Request) -> Response:
        """Greet the sender."""
        return Response(remark="hello")

    @handles(RequestCode.GET_BROKER_CLUSTER_INFO)
    def fail(self, request: Request) -> Response:
        """Fail."""
        raise ZeroDivisionError


class GreeterPlugin:
    """Brings the processor to name servers alone."""

    plugin_name = "greeter"

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        register("greet", declared_by(Greeter), lambda context: Greeter(), at="nameserver")


async def asked(server: NameServer, *codes: int) -> list[Any]:
    """The answers of a name server to requests without fields."""
    client = RemotingClient()
    try:
        return [await client.invoke(server.address, request(code, {}), 5_000) for code in codes]
    finally:
        await client.close()


def test_a_plugin_adds_and_replaces_request_codes_of_the_name_server() -> None:
    """What its handler raises is counted for it, and costs the name server nothing else."""

    async def live() -> None:
        async with NameServer(BrokerConfig(nameserver=LOCAL), plugins=[GreeterPlugin()]) as server:
            codes = (GREET, int(RequestCode.GET_BROKER_CLUSTER_INFO), int(RequestCode.GET_NAMESRV_CONFIG), 20_002)
            greeted, failed, own, unknown = await asked(server, *codes)
            assert (greeted.remark, failed.code, own.code, unknown.code) == ("hello", 1, 0, 3)
            (plugin,) = [info for info in server.kernel.describe() if info.name == "greeter"]
            assert plugin.errors == 1

    asyncio.run(live())


def test_disabled_plugins_of_the_broker_cause_no_warning_in_the_name_server(caplog: pytest.LogCaptureFixture) -> None:
    """One configuration serves both; only a name that neither has is worth a warning."""
    config = BrokerConfig(nameserver=LOCAL, disabled_plugins=("filters", "nowhere"))

    async def live() -> None:
        async with NameServer(config):
            pass

    with caplog.at_level(logging.WARNING):
        asyncio.run(live())
    assert [record.getMessage() for record in caplog.records] == [
        "disabled_plugins names what is not installed: nowhere"
    ]
