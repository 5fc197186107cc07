"""The name server's key-value configuration and its own settings (docs/internals/protocol.md, Request codes)."""

from __future__ import annotations

from collections.abc import Callable

from flintmq.config.errors import ConfigError
from flintmq.config.runtime import NAMESRV_RUNTIME_KEYS, evolve_namesrv, namesrv_as_properties
from flintmq.config.sections.models import NamesrvConfig
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports.access import ACCOUNT, ADMIN
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, handles
from flintmq.core.response_code import ResponseCode
from flintmq.core.route.kv_config import KVConfigManager
from flintmq.remoting.processors.answers import check_changeable, format_properties, read_properties, with_header
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.headers_route import (
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    KVKeyRequestHeader,
    PutKVConfigRequestHeader,
)


class NamesrvSettings:
    """The name server's configuration in force, which some requests may change. Loop thread.

    Args:
        config: at the start.
        on_change: called with each new configuration.
    """

    def __init__(self, config: NamesrvConfig, on_change: Callable[[NamesrvConfig], None] = lambda config: None) -> None:
        self.config = config
        self._on_change = on_change

    def update(self, changes: dict[str, str]) -> None:
        """Changes settings, all or none.

        Raises:
            RefusedError: NO_PERMISSION for one that may not be changed, SYSTEM_ERROR for a value that does not fit.
        """
        keys = frozenset(entry.key for entry in NAMESRV_RUNTIME_KEYS.values())
        check_changeable(changes, NAMESRV_RUNTIME_KEYS, keys)
        try:
            self.config = evolve_namesrv(self.config, changes)
        except ConfigError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error), reason="config.value") from error
        self._on_change(self.config)


class NamesrvConfigProcessor(DeclaredProcessor):
    """Answers about values by namespace and key, and about the name server's settings. Loop thread."""

    def __init__(self, kv: KVConfigManager, settings: NamesrvSettings) -> None:
        self._kv = kv
        self._settings = settings

    @handles(RequestCode.PUT_KV_CONFIG, header=PutKVConfigRequestHeader, needs=ADMIN, audited=True)
    def put(self, request: Request) -> Response:
        """Set the value of a key in a namespace."""
        header = request.header(PutKVConfigRequestHeader)
        self._kv.put(header.namespace, header.key, header.value)
        return Response()

    @handles(RequestCode.GET_KV_CONFIG, header=KVKeyRequestHeader, answer=GetKVConfigResponseHeader, needs=ACCOUNT)
    def get(self, request: Request) -> Response:
        """Return the value of a key in a namespace."""
        header = request.header(KVKeyRequestHeader)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            raise RefusedError(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
                reason="kv.missing",
            )
        return with_header(GetKVConfigResponseHeader(value=value))

    @handles(RequestCode.DELETE_KV_CONFIG, header=KVKeyRequestHeader, needs=ADMIN, audited=True)
    def delete(self, request: Request) -> Response:
        """Delete a key from a namespace."""
        header = request.header(KVKeyRequestHeader)
        self._kv.delete(header.namespace, header.key)
        return Response()

    @handles(RequestCode.GET_KVLIST_BY_NAMESPACE, header=GetKVListByNamespaceRequestHeader, needs=ACCOUNT)
    def list_namespace(self, request: Request) -> Response:
        """Return all keys and values of a namespace."""
        namespace = request.header(GetKVListByNamespaceRequestHeader).namespace
        values = self._kv.list_namespace(namespace)
        if values is None:
            raise RefusedError(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}", reason="kv.missing"
            )
        return Response(body=bodies.KVTable(values).encode())

    @handles(RequestCode.UPDATE_NAMESRV_CONFIG, needs=ADMIN, audited=True)
    def update_config(self, request: Request) -> Response:
        """Change settings of the name server while it runs.

        What may be changed is an allow-list (see :mod:`flintmq.config.runtime`).
        """
        self._settings.update(read_properties(request.body))
        return Response()

    @handles(RequestCode.GET_NAMESRV_CONFIG, needs=ADMIN)
    def get_config(self, _request: Request) -> Response:
        """Return the settings of the name server."""
        return Response(body=format_properties(namesrv_as_properties(self._settings.config)))
