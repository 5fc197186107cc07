"""Registers access control: the authenticator ``acl`` of brokers and name servers, and the processor of request codes 50 to 54.

If access control is switched off, only this module of the plugin ``acl`` is imported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.secret import Secret
from flintmq.config.sections.models import AclAccount
from flintmq.core.errors import RefusedError, StoreError
from flintmq.core.io import fastjson
from flintmq.core.io.clock import SYSTEM_CLOCK
from flintmq.core.kernel.hookspecs import PluginContext, RegisterAuthenticator, RegisterProcessor, hookimpl
from flintmq.core.kernel.ports import Authenticator
from flintmq.core.kernel.ports.access import ADMIN, Access, AccessRule
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, declared_by, handles
from flintmq.core.record.properties import REAL_TOPIC
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
    from flintmq.config import BrokerConfig
    from flintmq.core.broker.api import BrokerApi
    from flintmq.plugins.acl.account_store import AccountStore
    from flintmq.plugins.acl.authenticator import AclAuthenticator

NAME: Final = "acl"


class AclPlugin:
    """The plugin that checks accounts, signatures and permissions of requests. ``acl.enable`` switches it on."""

    plugin_name = NAME
    serves_name_servers = True

    @hookimpl
    def flintmq_authenticators(self, register: RegisterAuthenticator) -> None:
        register(NAME, _make_authenticator)

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        register(NAME, declared_by(AclProcessor), lambda context: _make_processor(context.api))

    @hookimpl
    def flintmq_broker_starting(self, api: BrokerApi) -> None:
        found = _acl_among(api.server.authenticators)
        if found is not None:
            found.topic_at = partial(topic_of_record, api)


def _make_authenticator(context: PluginContext[BrokerConfig]) -> AclAuthenticator:
    return make_authenticator(context.settings)


def make_authenticator(config: BrokerConfig) -> AclAuthenticator:
    """Return the authenticator for a configuration.

    Raises:
        ConfigError: an account or a file is not valid, or no account is given.
    """
    from flintmq.plugins.acl.account_store import AccountStore
    from flintmq.plugins.acl.authenticator import AclAuthenticator

    section = config.acl
    return AclAuthenticator(
        AccountStore(section, config.account_file, SYSTEM_CLOCK),
        SYSTEM_CLOCK,
        trace_topic=config.topics.trace_topic_name,
        extra=_extra_rules(section.extra_codes),
        strict=section.compat == "strict",
        replay_window_ms=section.replay_window_ms,
        reload_interval_s=section.reload_interval_ms / 1000,
    )


def _extra_rules(entries: Iterable[str]) -> dict[int, AccessRule]:
    """Return the rules in ``acl.extra_codes``, keyed by request code. An entry is ``CODE=public|client|admin``."""
    pairs = (entry.partition("=") for entry in entries)
    return {int(code): AccessRule(Access(word)) for code, _, word in pairs}


def _make_processor(api: BrokerApi) -> AclProcessor:
    found = _acl_among(api.server.authenticators)
    return AclProcessor(api, found.store if found is not None else None)


def _acl_among(authenticators: Iterable[Authenticator]) -> AclAuthenticator | None:
    several = tuple(authenticators)
    if not several:
        return None
    # AclAuthenticator is imported late, because a broker without access control does not need the class.
    from flintmq.plugins.acl.authenticator import AclAuthenticator

    return next((found for found in several if isinstance(found, AclAuthenticator)), None)


def topic_of_record(api: BrokerApi, commit_log_offset_bytes: int) -> str | None:
    """Return the topic of the record at a physical offset; None if no record is found.

    For a record that waits for its delivery in an internal topic, return the topic to which it will be delivered.
    """
    record = api.outlet.message_at(commit_log_offset_bytes)
    if record is None:
        return None
    return (
        record.properties.get(REAL_TOPIC, record.topic) if record.topic in api.topics.holding_topics else record.topic
    )


class AclProcessor(DeclaredProcessor):
    """Answers requests about accounts. Used only on the event loop's thread.

    Args:
        api: the broker.
        store: the accounts; None if access control is off.
    """

    def __init__(self, api: BrokerApi, store: AccountStore | None) -> None:
        self._api = api
        self._store = store

    @handles(
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header=CreateAccessConfigRequestHeader, needs=ADMIN, audited=True
    )
    def update(self, request: Request) -> Response:
        """Add or change the account that a request describes. Fields that the request lacks keep their values."""
        header = request.header(CreateAccessConfigRequestHeader)
        with self._changing(ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED) as store:
            store.update(_merged(store.table.written.get(header.access_key), header))
        return Response()

    @handles(RequestCode.DELETE_ACL_CONFIG, header=DeleteAccessConfigRequestHeader, needs=ADMIN, audited=True)
    def delete(self, request: Request) -> Response:
        """Remove the account whose access key a request names."""
        access_key = request.header(DeleteAccessConfigRequestHeader).access_key
        with self._changing(ResponseCode.DELETE_ACL_CONFIG_FAILED) as store:
            store.delete(access_key)
        return Response()

    @handles(
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        header=UpdateGlobalWhiteAddrsConfigRequestHeader,
        needs=ADMIN,
        audited=True,
    )
    def update_global_white(self, request: Request) -> Response:
        """Replace the address patterns for all accounts in an account file. A path in the request must name a file that the
        broker reads."""
        header = request.header(UpdateGlobalWhiteAddrsConfigRequestHeader)
        with self._changing(ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED) as store:
            store.set_global_white(_parts(header.global_white_addrs), header.acl_file_full_path or None)
        return Response()

    @handles(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, answer=GetBrokerAclConfigResponseHeader, needs=ADMIN)
    def info(self, _request: Request) -> Response:
        """Return the version of each account file: the number and the time of its changes."""
        api = self._api
        with self._changing(ResponseCode.SYSTEM_ERROR) as store:
            versions = {path: version.to_wire() for path, version in store.versions().items()}
        answer = GetBrokerAclConfigResponseHeader(
            version=fastjson.dumps(next(iter(versions.values()))),
            all_acl_file_version=fastjson.dumps(versions),
            broker_name=api.settings.current.broker.name,
            broker_addr=api.address.host_port,
            cluster_name=api.settings.current.broker.cluster,
        )
        return with_header(answer)

    @handles(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, needs=ADMIN)
    def list_accounts(self, request: Request) -> Response:
        """Return the accounts without their secret keys, if ``acl.list_accounts`` allows it. RocketMQ removed this request
        code."""
        if self._store is None or not self._api.settings.current.acl.list_accounts:
            raise unsupported(request.code)
        table = self._store.table
        return with_json(
            {
                "globalWhiteAddrs": list(table.global_white_texts),
                "plainAccessConfigs": [_listed(account) for account in table.written.values()],
            }
        )

    @contextlib.contextmanager
    def _changing(self, code: int) -> Iterator[AccountStore]:
        """Provide the table of accounts to a ``with`` block. Raise RefusedError with ``code`` if access control is off, or if
        the block raises ConfigError or StoreError."""
        if self._store is None:
            raise RefusedError(code, "access control is off", reason="acl.off", key="acl.enable (aclEnable)")
        try:
            yield self._store
        except (ConfigError, StoreError) as error:
            raise RefusedError(code, str(error)[:500], reason="acl.change", key="acl.file") from error


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


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
            given[name] = _parts(text)
    return AclAccount(**given) if old is None else attrs.evolve(old, **given)


def _listed(account: AclAccount) -> dict[str, Any]:
    """Return an account without its secret key. Fields are listed by name, so that a new field is not exposed."""
    return {
        "accessKey": account.access_key,
        "admin": bool(account.admin),
        "defaultGroupPerm": account.default_group_perm,
        "defaultTopicPerm": account.default_topic_perm,
        "groupPerms": list(account.group_perms),
        "topicPerms": list(account.topic_perms),
        "whiteRemoteAddress": account.white_remote_address,
    }
