"""The console listens where it was told to, and says who else could read or change what it shows."""

from __future__ import annotations

import asyncio
import logging

import pytest

pytest.importorskip("uvicorn", reason="the extra 'console' is not installed")
pytest.importorskip("jinja2", reason="the extra 'console' is not installed")

from flintmq.config.errors import ConfigError
from flintmq.config.sections.console import ConsoleSection
from flintmq.core.errors import RemotingConnectError
from flintmq.programs.console.server import ConsoleServer
from flintmq.testing.cluster import EmbeddedCluster


def test_a_console_on_a_public_address_without_tls_and_without_access_control_logs_warnings(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        settings = ConsoleSection(host="0.0.0.0", port=0)
        async with ConsoleServer(cluster.name_server.address, settings) as server:
            await server.warn_if_exposed()

    caplog.set_level(logging.WARNING, "flintmq.console")
    asyncio.run(run())
    assert [record.event for record in caplog.records] == ["console.plain", "console.open"]  # type: ignore[attr-defined]


def test_the_console_refuses_to_start_on_a_port_in_use_or_with_an_invalid_certificate() -> None:
    async def run() -> None:
        async with ConsoleServer("127.0.0.1:9", ConsoleSection(port=0)) as server:
            port = int(server.address.rpartition(":")[2])
            with pytest.raises(RemotingConnectError, match=r"console\.port"):
                await ConsoleServer("127.0.0.1:9", ConsoleSection(port=port)).__aenter__()
        with pytest.raises(ConfigError, match="certificate cannot be used"):
            await ConsoleServer("127.0.0.1:9", ConsoleSection(port=0, certificate=__file__)).__aenter__()

    asyncio.run(run())
