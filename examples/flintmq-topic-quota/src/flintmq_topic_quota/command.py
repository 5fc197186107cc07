"""The command ``flintmq topic-quota``, which prints how much of their quotas the topics have used."""

from __future__ import annotations

import asyncio
import json

import click

from flintmq.client import RemotingClient
from flintmq.protocol import RequestCode, request
from flintmq_topic_quota.quota import USED


@click.command()
@click.argument("address", metavar="HOST:PORT")
def topic_quota(address: str) -> None:
    """Print how many bytes clients have sent in this period to the topics with a quota."""
    print_used(address)


def print_used(address: str) -> None:
    """Print how many bytes clients have sent in this period to the topics with a quota, at the broker at ``host:port``."""

    async def ask() -> bytes:
        async with RemotingClient() as client:
            return (await client.invoke(address, request(RequestCode.GET_BROKER_RUNTIME_INFO), 5_000)).body

    print(json.loads(asyncio.run(ask()))["table"][USED])
