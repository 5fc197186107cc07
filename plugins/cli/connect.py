"""A client for the length of one command, and what to do when nobody answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from flintmq.core.errors import RefusedError, RemotingError
from flintmq.plugins.cli.exits import CommandError, ExitCode
from flintmq.plugins.cli.options import name_servers

if TYPE_CHECKING:
    from flintmq.remoting.client.admin import AdminClient
    from flintmq.remoting.client.instance import ClientInstance

T = TypeVar("T")

HINT = "is one running? Start one with 'flintmq run', or name another with -n HOST:PORT"


def checked_name_servers(given: str | None) -> str:
    """The name servers to ask. Raises ``CommandError`` when one is no address."""
    text = name_servers(given)
    for address in text.replace(",", ";").split(";"):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise CommandError(f"-n: '{address[:80]}' is no HOST:PORT", ExitCode.USAGE)
    return text


def with_client(given: str | None, work: Callable[[ClientInstance], Awaitable[T]]) -> T:
    """Runs work with a client of these name servers and closes it.

    Raises:
        CommandError: nobody answers; says what to do about it.
        RefusedError: a request was refused.
    """
    addresses = checked_name_servers(given)

    async def run() -> T:
        from flintmq.remoting.client.environment import options_of_environment
        from flintmq.remoting.client.instance import ClientInstance

        client = ClientInstance(addresses, **options_of_environment(os.environ))
        try:
            return await work(client)
        finally:
            await client.close()

    try:
        return asyncio.run(run())
    except RemotingError as error:
        raise CommandError(f"{error}; {HINT}", ExitCode.NETWORK) from error


def with_admin(given: str | None, work: Callable[[AdminClient], Awaitable[T]]) -> T:
    """As :func:`with_client`, with an administration client."""

    async def run(client: ClientInstance) -> T:
        from flintmq.remoting.client.admin import AdminClient

        return await work(AdminClient(client=client))

    return with_client(given, run)


def is_missing(error: RefusedError) -> bool:
    """Whether what was asked for does not exist."""
    from flintmq.remoting.codes import ResponseCode

    return error.code in (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.CONSUMER_NOT_ONLINE,
    )
