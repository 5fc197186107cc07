"""A client for the length of one command, and what to do when nobody answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from flintmq.core.errors import RefusedError, RemotingError
from flintmq.plugins.cli.exits import CommandError, ExitCode
from flintmq.plugins.cli.options import name_servers

if TYPE_CHECKING:
    from flintmq.remoting.client.access import Access
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


_said: Final[dict[str, str]] = {}
"""What the command line said, by variable. One process runs one command at a time."""

_NO_CLIENTS: Final = frozenset({"broker"})
"""Commands with ``--namesrv`` whose signing and encrypting is a matter of settings."""


def forget_access() -> None:
    """Before another command line is read."""
    _said.clear()


def access() -> Access:
    """How clients of this command sign and encrypt. Raises ``ConfigError``."""
    from flintmq.remoting.client.environment import access_of

    return access_of({**os.environ, **_said})


def access_to_own(settings: Sequence[str] = ()) -> Access:
    """How a client speaks with a FlintMQ that was started for it, with these settings and those of the environment.

    It encrypts when that one does, and trusts its certificate; it signs as was said, else as that one's broker does.

    Raises:
        ConfigError: a setting is wrong, or see :func:`access`.
    """
    from flintmq.config import load_config
    from flintmq.remoting.client.acl_signer import AclSigner
    from flintmq.remoting.server.tls import client_context

    said = access()
    config = load_config(None, settings).config
    tls, namesrv = config.listen.tls, config.namesrv
    context = None
    if tls.mode_in_force != "disabled":
        context = said.ssl_context or client_context(
            tls.certificate, tls.certificate, tls.key, password=tls.key_password
        )
    signer = said.signer
    if signer is None and namesrv.access_key is not None and namesrv.secret_key is not None:
        signer = AclSigner(namesrv.access_key, namesrv.secret_key)
    return attrs.evolve(said, signer=signer, ssl_context=context)


def add_access_options(command: Any) -> None:
    """Gives a command that is a client, which is one that takes ``--namesrv``, the options; and those in a group."""
    from flintmq.plugins.cli.access_options import parameters

    if any(parameter.name == "namesrv" for parameter in command.params) and command.name not in _NO_CLIENTS:
        command.params += parameters(_said)
    for inner in getattr(command, "commands", {}).values():
        add_access_options(inner)


def with_client(given: str | None, work: Callable[[ClientInstance], Awaitable[T]]) -> T:
    """Runs work with a client of these name servers and closes it.

    Raises:
        CommandError: nobody answers; says what to do about it.
        ConfigError: see :func:`access`.
        RefusedError: a request was refused.
    """
    addresses = checked_name_servers(given)
    signing = access()

    async def run() -> T:
        from flintmq.remoting.client.instance import ClientInstance

        client = ClientInstance(addresses, **signing.options())
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
    from flintmq.remoting.wire.codes import ResponseCode

    return error.code in (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.CONSUMER_NOT_ONLINE,
    )
