"""``flintmq ping`` checks whether a server answers; for health checks of containers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from flintmq.config import load_config
from flintmq.core.errors import FlintError
from flintmq.programs.cli import options
from flintmq.programs.cli.connect import access, check_address
from flintmq.programs.cli.exits import ExitCode
from flintmq.programs.cli.output import print_json, print_line
from flintmq.programs.cli.parser import Command
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.server.addresses import EVERY_INTERFACE
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request


@click.command(cls=Command)
@click.argument(
    "addresses",
    nargs=-1,
    metavar="[HOST:PORT]...",
    help="Brokers or name servers; by default the broker of the configuration.",
)
@options.config_file
@click.option("--timeout", "timeout_text", default="3s", metavar="DURATION", help="The longest wait for an answer.")
@options.access
@options.as_json
def ping(addresses: tuple[str, ...], config: Path | None, timeout_text: str, as_json: bool) -> None:
    timeout_s = options.timeout_s(timeout_text, "--timeout") or 3.0
    for address in addresses:
        check_address(address)
    found = asyncio.run(_ask(addresses or (_own_broker(config),), timeout_s))
    if as_json:
        print_json(found)
    else:
        for row in found:
            print_line(f"{row['address']} " + (row["error"] or f"answered after {row['answered_ms']:.1f} ms"))
    if any(row["error"] for row in found):
        raise click.exceptions.Exit(ExitCode.NETWORK)


def _own_broker(config: Path | None) -> str:
    """Return the address at which a broker with this configuration and environment is reached from its own machine."""
    listen = load_config(config).config.listen
    host = "127.0.0.1" if listen.host in EVERY_INTERFACE else listen.host
    return f"{host}:{listen.port}"


async def _ask(addresses: Sequence[str], timeout_s: float) -> list[dict[str, Any]]:
    said = access()
    async with RemotingClient(ssl_context=said.ssl_context) as client:
        if said.signer is not None:
            client.add_hook(said.signer)
        return await asyncio.gather(*(_answer(client, address, timeout_s) for address in addresses))


async def _answer(client: RemotingClient, address: str, timeout_s: float) -> dict[str, Any]:
    """Return the address of a server, the milliseconds until it answered, or its error. A refusal counts as an answer, because
    it shows that the server runs."""
    began_s = time.perf_counter()
    try:
        await client.invoke(address, request(RequestCode.GET_BROKER_RUNTIME_INFO), timeout_s * 1000)
    except FlintError as error:
        return {"address": address, "answered_ms": None, "error": str(error)}
    return {"address": address, "answered_ms": round((time.perf_counter() - began_s) * 1000, 1), "error": None}
