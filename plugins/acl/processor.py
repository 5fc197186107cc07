"""Changes and lists accounts over the wire (request codes 50 to 54). No answer holds a secret key.

See docs/internals/protocol.md, Request codes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.secret import Secret
from flintmq.config.sections.models import AclAccount
from flintmq.core.errors import RefusedError, StoreError
from flintmq.core.io import fastjson
from flintmq.core.kernel.ports.access import ADMIN
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, handles
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.processors.answers import with_header, with_json
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.headers_admin import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from flintmq.remoting.wire.refusal import unsupported

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.plugins.acl.account_store import AccountStore


class AclProcessor(DeclaredProcessor):
    """Answers requests about accounts. Loop thread.

    Args:
        api: the broker.
        store: the accounts; None while access control is off.
    """

    def __init__(self, api: BrokerApi, store: AccountStore | None) -> None:
        self._api = api
        self._store = store

    @handles(
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header=CreateAccessConfigRequestHeader, needs=ADMIN, audited=True
    )
    def update(self, request: Request) -> Response:
        """Add or change an account; a field that is not given keeps its value."""
        header = request.header(CreateAccessConfigRequestHeader)
        code = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        store = self._enabled(code)
        _change(code, lambda: store.update(_merged(store.table.written.get(header.access_key), header)))
        return Response()

    @handles(RequestCode.DELETE_ACL_CONFIG, header=DeleteAccessConfigRequestHeader, needs=ADMIN, audited=True)
    def delete(self, request: Request) -> Response:
        """Remove an account."""
        access_key = request.header(DeleteAccessConfigRequestHeader).access_key
        code = ResponseCode.DELETE_ACL_CONFIG_FAILED
        store = self._enabled(code)
        _change(code, lambda: store.delete(access_key))
        return Response()

    @handles(
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        header=UpdateGlobalWhiteAddrsConfigRequestHeader,
        needs=ADMIN,
        audited=True,
    )
    def update_global_white(self, request: Request) -> Response:
        """Replace a file's addresses. The path only selects one of the files read."""
        header = request.header(UpdateGlobalWhiteAddrsConfigRequestHeader)
        code = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        store = self._enabled(code)
        addresses = [part.strip() for part in header.global_white_addrs.split(",") if part.strip()]
        _change(code, lambda: store.set_global_white(addresses, header.acl_file_full_path or None))
        return Response()

    @handles(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, answer=GetBrokerAclConfigResponseHeader, needs=ADMIN)
    def info(self, _request: Request) -> Response:
        """The versions of the account files."""
        api = self._api
        versions = {path: version.to_wire() for path, version in self._enabled(1).versions().items()}
        answer = GetBrokerAclConfigResponseHeader(
            version=fastjson.dumps(next(iter(versions.values()))),
            all_acl_file_version=fastjson.dumps(versions),
            broker_name=api.config.broker.name,
            broker_addr=api.address.host_port,
            cluster_name=api.config.broker.cluster,
        )
        return with_header(answer)

    @handles(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, needs=ADMIN)
    def list_accounts(self, request: Request) -> Response:
        """List the accounts without their secret keys, where ``acl.list_accounts`` allows it; RocketMQ removed this code."""
        if self._store is None or not self._api.config.acl.list_accounts:
            raise unsupported(request.code)
        table = self._store.table
        return with_json(
            {
                "globalWhiteAddrs": list(table.global_white_texts),
                "plainAccessConfigs": [_listed(account) for account in table.written.values()],
            }
        )

    def _enabled(self, code: int) -> AccountStore:
        if self._store is None:
            raise RefusedError(code, "access control is off", reason="acl.off", key="acl.enable (aclEnable)")
        return self._store


def _change(code: int, change: Callable[[], None]) -> None:
    try:
        change()
    except (ConfigError, StoreError) as error:
        raise RefusedError(code, str(error)[:500], reason="acl.change", key="acl.file") from error


def _merged(old: AclAccount | None, header: CreateAccessConfigRequestHeader) -> AclAccount:
    given: dict[str, Any] = {"accessKey": header.access_key, "admin": header.admin}
    if header.secret_key:
        given["secretKey"] = Secret(header.secret_key)
    elif old is None:
        raise ConfigError("a new account needs a 'secretKey'")
    if header.white_remote_address is not None:
        given["whiteRemoteAddress"] = header.white_remote_address
    if header.default_topic_perm:
        given["defaultTopicPerm"] = header.default_topic_perm
    if header.default_group_perm:
        given["defaultGroupPerm"] = header.default_group_perm
    for name, text in (("topicPerms", header.topic_perms), ("groupPerms", header.group_perms)):
        if text is not None:
            given[name] = tuple(part.strip() for part in text.split(",") if part.strip())
    return AclAccount(**given) if old is None else attrs.evolve(old, **given)


def _listed(account: AclAccount) -> dict[str, Any]:
    """Return an account without its secret key. The fields are named one by one, so that no later field is listed by itself."""
    return {
        "accessKey": account.access_key,
        "admin": bool(account.admin),
        "defaultGroupPerm": account.default_group_perm,
        "defaultTopicPerm": account.default_topic_perm,
        "groupPerms": list(account.group_perms),
        "topicPerms": list(account.topic_perms),
        "whiteRemoteAddress": account.white_remote_address,
    }
