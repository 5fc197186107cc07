"""Runs a command with a client, and says what to do if no server answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import attrs
import click

from flintmq.config import load_config
from flintmq.core.errors import RemotingError
from flintmq.programs.cli.exits import CommandError, ExitCode, warn
from flintmq.programs.cli.options import DEFAULT_NAME_SERVER, given_access
from flintmq.remoting.client.access import Access, AclSigner, access_of
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.server.tls import client_context

T = TypeVar("T")

HINT = "is one running? Start one with 'flintmq run', or name another with -n HOST:PORT"


def checked_name_servers(text: str) -> str:
    """Return the addresses of name servers after checking them. Raises CommandError for text that is not an address."""
    for address in text.replace(",", ";").split(";"):
        check_address(address.strip(), "-n: ")
    return text


def check_address(address: str, option: str = "") -> None:
    """Raise CommandError if a text is not an address; the error begins with the option's name."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise CommandError(f"{option}'{address[:80]}' is not HOST:PORT", ExitCode.USAGE)


def access() -> Access:
    """Return the credentials and the TLS settings for this command's clients. Raises ConfigError."""
    return access_of({**os.environ, **given_access})


def access_to_own(settings: Sequence[str] = ()) -> Access:
    """Return the credentials and the TLS settings of a client for a FlintMQ server that was started with the given settings.

    The client uses TLS if the server uses TLS, and trusts the server's certificate. The client signs with the credentials of
    the command line, or else with the credentials of the server's own broker.

    Raises:
        ConfigError: a setting is not valid; see also :func:`access`.
    """
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


def with_client(work: Callable[[ClientInstance], Awaitable[T]]) -> T:
    """Run a function with a client of the name servers in the command line or the environment, and close the client.

    Raises:
        CommandError: no server answers; the error says what to do.
        ConfigError: see :func:`access`.
        RefusedError: a request was refused.
    """
    said = {**os.environ, **given_access}
    addresses = checked_name_servers(said.get("NAMESRV_ADDR") or DEFAULT_NAME_SERVER)
    signing = access_of(said)

    async def run() -> T:
        client = ClientInstance(addresses, **signing.options())
        try:
            return await work(client)
        finally:
            await client.close()

    try:
        return asyncio.run(run())
    except RemotingError as error:
        raise CommandError(f"{error}; {HINT}", ExitCode.NETWORK) from error


def with_admin(work: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Run a function with an administration client, and close the client; see :func:`with_client`."""
    return with_client(lambda client: work(AdminClient(client=client)))


class Silent:
    """Collects the brokers that do not answer a command, so that the command can show the answers of the other brokers. For use
    on one event loop."""

    def __init__(self) -> None:
        self._reasons: dict[str, RemotingError] = {}
        self._answered = False

    async def ask(self, address: str, work: Callable[[], Awaitable[T]]) -> T | None:
        """Return a broker's answer; None if the broker does not answer, now or in an earlier call.

        Raises:
            RefusedError: the broker refuses.
        """
        if address in self._reasons:
            return None
        try:
            answer = await work()
        except RemotingError as error:
            self._reasons[address] = error
            return None
        self._answered = True
        return answer

    def check(self) -> None:
        """Raise the error of the first broker that did not answer, if no broker has answered."""
        if self._reasons and not self._answered:
            raise next(iter(self._reasons.values()))

    def end(self) -> None:
        """Warn about the brokers that did not answer, and exit with code 1. Do nothing if all answered."""
        for address, error in self._reasons.items():
            warn(f"{address} does not answer, so what it has is missing here: {error}")
        if self._reasons:
            raise click.exceptions.Exit(ExitCode.FAILED)


async def until_first(*work: Coroutine[Any, Any, object]) -> None:
    """Run coroutines at the same time until the first of them ends, and cancel the rest. Raises the error of this first
    coroutine."""
    tasks = [asyncio.ensure_future(part) for part in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
