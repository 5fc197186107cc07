"""Pages for the accounts of brokers with access control, and for the accounts' permissions. The brokers decide who may change
accounts."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from starlette.responses import Response

from flintmq.core.errors import FlintError, RefusedError, RemotingError
from flintmq.programs.console.clusters import is_denied
from flintmq.programs.console.web import FormError, Visitor, page
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request
from flintmq.remoting.wire.headers_admin import CreateAccessConfigRequestHeader, DeleteAccessConfigRequestHeader

PERMISSIONS: Final = ("DENY", "PUB", "SUB", "PUB|SUB")
_KEY_MAX_CHARS: Final = 255
_RULES: Final = re.compile(r"[^\s=,]{1,255}=(?:DENY|PUB|SUB|PUB\|SUB)(?:,[^\s=,]{1,255}=(?:DENY|PUB|SUB|PUB\|SUB))*")


class Account(msgspec.Struct, frozen=True, rename="camel"):
    """An account as brokers list it, without its secret key."""

    access_key: str
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None
    white_remote_address: str | None = None


class _Accounts(msgspec.Struct, frozen=True, rename="camel"):
    plain_access_configs: list[Account] | None = None


async def accounts(visitor: Visitor) -> Response:
    """List the accounts, with a form for a new account or for the account that the address names."""
    found, why = await _listed(visitor)
    key = visitor.query("key")
    begun = next((one for one in found or () if key and one.access_key == key), None)
    if key and found is not None and begun is None:
        raise FormError(f"The brokers have no account {key[:80]}.", 404)
    return visitor.render("accounts.html", accounts=found, why=why, begun=begun, permissions=PERMISSIONS)


async def _listed(visitor: Visitor) -> tuple[list[Account] | None, str]:
    """Return the accounts of the first master that answers, or None with the reason."""
    for address in (await _masters(visitor)).values():
        try:
            answer = await visitor.access.client.ask(address, request(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG))
            return msgspec.json.decode(answer.body or b"{}", type=_Accounts).plain_access_configs or [], ""
        except RefusedError as error:
            if is_denied(error):
                raise
            return None, "The brokers do not list accounts: access control is off, or acl.list_accounts is."
        except RemotingError:
            # A broker that does not answer is skipped: some versions of RocketMQ 4.9 do not know the request for accounts.
            continue
        except msgspec.MsgspecError:
            return None, "The broker's list of accounts cannot be read."
    return None, "No broker answers the request for its accounts."


async def _masters(visitor: Visitor) -> dict[str, str]:
    masters = await visitor.access.admin.masters()
    if not masters:
        raise RemotingError("no master is registered with the name server")
    return masters


async def save(visitor: Visitor) -> Response:
    """Create an account, or change an existing account, at every broker.

    The console shows no preview of this change, because the preview's page would contain the secret key.
    """
    key, secret = _key(visitor), visitor.fields.get("secret", "")
    if secret and len(secret) < 7:
        raise FormError("The secret key has less than 7 characters: RocketMQ's brokers need at least 7.")
    wanted: dict[str, Any] = {"admin": visitor.field("admin") == "on"}
    for name in ("default_topic_perm", "default_group_perm"):
        if visitor.field(name) not in ("", *PERMISSIONS):
            raise FormError(f"A permission is one of {', '.join(PERMISSIONS)}.")
        wanted[name] = visitor.field(name) or None
    for name in ("topic_perms", "group_perms"):
        rules = ",".join(visitor.field(name).replace(",", "\n").split())
        if rules and not _RULES.fullmatch(rules):
            raise FormError(
                "The permission of a topic or group must be written NAME=PUB, NAME=SUB, NAME=PUB|SUB or NAME=DENY."
            )
        wanted[name] = rules or None
    header = CreateAccessConfigRequestHeader(access_key=key, secret_key=secret or None, **wanted)
    text = ", ".join(f"{name} {value}" for name, value in wanted.items() if value)
    await _at_every_broker(visitor, "save account", key, f"{text}{', with a new secret key' if secret else ''}", header)
    return visitor.render("done.html", what="Saved", text=f"Account {key} is saved at every broker.", back="/accounts")


async def deletion(visitor: Visitor) -> Response:
    """Show the consequences of deleting an account, and ask for confirmation."""
    key = visitor.query("key")
    lost = [f"Clients that sign with {key} would be refused from then on, at every broker."]
    if key == visitor.account:
        lost.append("It is the account that you are logged in with.")
    return visitor.render(
        "deletion.html",
        what=f"account {key}",
        lost=lost,
        action="/account/delete/now",
        back="/accounts",
        confirm=visitor.confirmation("/account/delete/now", key=key),
    )


async def delete(visitor: Visitor) -> Response:
    """Delete an account at every broker."""
    key = _key(visitor)
    await _at_every_broker(visitor, "delete account", key, "gone", DeleteAccessConfigRequestHeader(access_key=key))
    return visitor.render("done.html", what="Deleted", text=f"Account {key} is deleted.", back="/accounts")


async def _at_every_broker(
    visitor: Visitor,
    action: str,
    key: str,
    result: str,
    header: CreateAccessConfigRequestHeader | DeleteAccessConfigRequestHeader,
) -> None:
    is_made = isinstance(header, CreateAccessConfigRequestHeader)
    code = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG if is_made else RequestCode.DELETE_ACL_CONFIG
    done: list[str] = []
    try:
        for broker, address in (await _masters(visitor)).items():
            await visitor.access.client.ask(address, request(code, header))
            done.append(broker)
    except FlintError as error:
        visitor.audit(action, key, f"failed: {error}" + (f"; done at {', '.join(done)}" if done else ""))
        raise
    visitor.audit(action, key, f"done: {result}")


def _key(visitor: Visitor) -> str:
    key = visitor.field("key")
    if not key or len(key) > _KEY_MAX_CHARS or not key.isprintable():
        raise FormError("Name the account by its access key.")
    return key


ROUTES: Final = (
    page("/accounts", accounts),
    page("/account/save", save, changes=True),
    page("/account/delete", deletion),
    page("/account/delete/now", delete, changes=True, confirmed=True),
)
