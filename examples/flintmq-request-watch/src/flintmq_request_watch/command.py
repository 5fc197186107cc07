"""The command ``flintmq request-counts``, which prints the number of requests that a server has received."""

from __future__ import annotations

import asyncio
import json

import click

from flintmq.client import RemotingClient
from flintmq.protocol import request
from flintmq_request_watch.watch import COUNTS


@click.command()
@click.argument("address", metavar="HOST:PORT")
def request_counts(address: str) -> None:
    """Print the number of requests that a broker or name server has received, by code."""
    print_counts(address)


def print_counts(address: str) -> None:
    """Print how many requests the server at ``host:port`` has received, with one request code on each line."""

    async def ask() -> bytes:
        async with RemotingClient() as client:
            return (await client.invoke(address, request(COUNTS, {}), 5_000)).body

    for code, count in sorted(json.loads(asyncio.run(ask()))["requests"].items(), key=lambda pair: int(pair[0])):
        print(code, count)
