"""Clients of the cluster, one per account: created at the account's first login and closed after its last session."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Mapping
from typing import Final

from flintmq.config.secret import Secret
from flintmq.core.errors import FlintError, RefusedError, RemotingError
from flintmq.core.io.clock import Clock
from flintmq.core.log_events import event_log
from flintmq.programs.cluster_view.poll import Pace
from flintmq.programs.cluster_view.view import ClusterView
from flintmq.remoting.client.access import AclSigner
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.remoting.wire.command import request

log = event_log("flintmq.console")

PACE: Final = Pace(idle_s=20.0)
CHECKED_S: Final = 10.0
"""Seconds for which the brokers' last decision to accept or refuse an account stays valid. Afterwards the brokers are asked
again."""
CHECK_WAITED_S: Final = 60.0
"""Age in seconds from which the brokers' last decision to accept or refuse an account is too old for a page of the console.
With a younger decision, the page is shown immediately. Otherwise, the page waits for a new decision."""
_ASKED_MAX: Final = 3
"""Maximum number of brokers that are asked whether they accept an account. The first answer decides."""


def is_denied(error: FlintError) -> bool:
    """Return whether an error means that a broker or name server refused an account, or refused a request without an
    account."""
    if not isinstance(error, RefusedError):
        return False
    return error.code == ResponseCode.NO_PERMISSION or "AclException" in error.remark


class ClusterAccess:
    """The client of one account, shared by the account's sessions. For the loop thread only.

    Args:
        clusters: creates this object, and closes it when the account's last session has ended.
        key: the key of this object in ``clusters``.
        account: the access key; empty for unsigned requests.
        client: the client, which signs its requests.
    """

    def __init__(self, clusters: Clusters, key: str, account: str, client: ClientInstance) -> None:
        self.key = key
        self.account = account
        self.client = client
        self.admin = AdminClient(client=client)
        self._clusters = clusters
        self._taken: bool | None = None
        self._failure: RemotingError | None = None
        self._checked_s = float("-inf")
        self._checking: asyncio.Task[None] | None = None
        self._holders = 0
        self._view: ClusterView | None = None

    @property
    def view(self) -> ClusterView:
        """The account's view of the cluster. The view sends requests to brokers while pages use it, and for 20 s more."""
        assert self._view is not None, "open_view comes first"
        return self._view

    async def open_view(self) -> None:
        """Create the account's view of the cluster if the view does not exist. Idempotent."""
        if self._view is None:
            self._view = ClusterView(self.admin, PACE)
            await self._view.__aenter__()

    def hold(self) -> None:
        """Keep the account's client open until a call of :meth:`release`."""
        self._holders += 1

    def release(self) -> None:
        """Declare that one user of the account's client, such as a session, no longer needs it. Each user calls :meth:`hold`
        once and later this method once. The client is closed when the last user has called this method."""
        self._holders -= 1
        if self._holders <= 0:
            self._clusters.close_soon(self)

    async def check(self) -> None:
        """Check that a broker and the name server accept the account.

        Raises:
            RefusedError: a broker or the name server refuses; :func:`is_denied` says whether because of the account.
            RemotingError: no name server or no broker answers.
        """
        masters = list((await self.admin.masters()).values())[:_ASKED_MAX]
        failure: RemotingError | None = None
        for address in masters:
            try:
                # The request for the system topics only tests the account. The list of system topics is not used.
                # If access control is on, a broker refuses all requests of an account that is not valid.
                await self.client.ask(address, request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))
            except RemotingError as error:
                failure = error
                continue
            except RefusedError as error:
                if is_denied(error):
                    raise
            failure = None
            break
        if failure is not None:
            raise failure
        if self.account and not masters:
            raise RemotingError("no broker is registered that could check the account")

    async def is_taken(self) -> bool:
        """Return whether the brokers accepted the account when they were last asked. They are asked again after ten seconds.

        The caller waits for the brokers only the first time, or if the last answer is a minute old.

        Raises:
            RemotingError: no broker answers, and none has answered before.
        """
        age_s = self.client.clock.monotonic_s() - self._checked_s
        if self._checking is None and age_s >= CHECKED_S:
            self._checking = asyncio.create_task(self._ask_whether_taken(), name="check of an account")
        if self._taken is None or (age_s >= CHECK_WAITED_S and self._checking is not None):
            assert self._checking is not None
            await asyncio.shield(self._checking)
        if self._taken is None:
            raise self._failure or RemotingError("no broker answers")
        return self._taken

    async def _ask_whether_taken(self) -> None:
        try:
            await self.check()
        except RemotingError as error:
            self._failure = error
            # If no broker answers, an accepted account stays accepted, so that its user can still see earlier data.
            # ``_failure`` is set, so that the console's pages report that no broker answers.
            if self._taken:
                self._checked_s = self.client.clock.monotonic_s()
        except RefusedError as error:
            self._failure, self._taken = None, not is_denied(error)
            self._checked_s = self.client.clock.monotonic_s()
        else:
            self._failure, self._taken = None, True
            self._checked_s = self.client.clock.monotonic_s()
        finally:
            self._checking = None

    async def close(self) -> None:
        """Close the connections of the account's client."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)
        if self._view is not None:
            await self._view.close()
        await self.client.close()


class Clusters:
    """The clients of all accounts that are in use, one per account. For the loop thread only.

    Args:
        name_servers: ``host:port;host:port`` of the cluster.
        clock: the clients' clock.
        ssl_context: for encrypted connections; None for unencrypted connections.
    """

    def __init__(self, name_servers: str, clock: Clock, ssl_context: ssl.SSLContext | None = None) -> None:
        self.name_servers = name_servers
        self._clock = clock
        self._ssl_context = ssl_context
        self._open: dict[str, ClusterAccess] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def accounts(self) -> Mapping[str, ClusterAccess]:
        """The open clients of accounts, keyed by a hash of access key and secret key."""
        return self._open

    def anonymous(self) -> ClusterAccess:
        """Return the client without an account, for clusters without access control. The client stays open."""
        return self._find("", "", None)

    def any_taken(self) -> ClusterAccess:
        """Return a client for the console's own requests: the client of a logged-in account, or else the client without an
        account."""
        return next((one for one in self._open.values() if one.account), None) or self.anonymous()

    def signed(self, access_key: str, secret_key: str) -> ClusterAccess:
        """Return the client of an account. The account is not checked. While the client is open, each call with the same access
        key and secret key returns the same object."""
        # The table's key is a hash of the account's keys, so that a traceback that shows the table hides the secret key.
        key = hashlib.sha256(f"{access_key}\0{secret_key}".encode("utf-8", "replace")).hexdigest()
        return self._find(key, access_key, AclSigner(access_key, Secret(secret_key)))

    def _find(self, key: str, account: str, signer: AclSigner | None) -> ClusterAccess:
        access = self._open.get(key)
        if access is None:
            hooks = () if signer is None else (signer,)
            client = ClientInstance(self.name_servers, hooks=hooks, ssl_context=self._ssl_context, clock=self._clock)
            client.bodies_stay_packed = True
            access = self._open[key] = ClusterAccess(self, key, account, client)
            if not key:
                access.hold()
        return access

    def close_soon(self, access: ClusterAccess) -> None:
        """Close the client of an account that has no session."""
        if self._open.get(access.key) is access:
            del self._open[access.key]
        task = asyncio.ensure_future(access.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close the clients of all accounts."""
        opened, self._open = list(self._open.values()), {}
        await asyncio.gather(*(access.close() for access in opened), *self._closing)
