"""Settings of access control (``acl:``) and of encrypted connections (``listen.tls:``)."""

from __future__ import annotations

import re
from typing import ClassVar, Final

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.fields import option
from flintmq.config.secret import Secret
from flintmq.config.units import DAY_MS

KEY_MIN_LENGTH: Final = 7
"""Smallest length of access keys and secret keys, because RocketMQ refuses six characters or fewer."""
_KEY: Final = re.compile(r"[\x21-\x7e]{7,256}")


@attrs.frozen(kw_only=True)
class AclAccount:
    """One account of access control, with the field names of RocketMQ's ``plain_acl.yml``."""

    access_key: str = attrs.field(alias="accessKey")
    """Name of the account. Clients send the name with every request."""
    secret_key: Secret = attrs.field(alias="secretKey", repr=False)
    """Secret key with which the account's requests are signed. The key itself is never sent."""
    white_remote_address: str | None = attrs.field(alias="whiteRemoteAddress", default=None)
    """Addresses from which the account may send requests; empty for any. With ``acl.compat: strict``, requests from these
    addresses need no signature."""
    admin: bool | None = attrs.field(default=None)
    """Whether the account may do everything, including administration."""
    default_topic_perm: str | None = attrs.field(alias="defaultTopicPerm", default=None)
    """The account's permission in topics that ``topic_perms`` does not list: DENY, PUB, SUB or PUB|SUB; empty is DENY."""
    default_group_perm: str | None = attrs.field(alias="defaultGroupPerm", default=None)
    """The account's permission in consumer groups that ``group_perms`` does not list: DENY, PUB, SUB or PUB|SUB; empty is
    DENY."""
    topic_perms: tuple[str, ...] = attrs.field(alias="topicPerms", default=())
    """The account's permissions in topics, ``topic=PERM`` each."""
    group_perms: tuple[str, ...] = attrs.field(alias="groupPerms", default=())
    """The account's permissions in consumer groups, ``group=PERM`` each."""

    def __attrs_post_init__(self) -> None:
        if _KEY.fullmatch(self.access_key) is None:
            raise ConfigError("'accessKey' must be 7 to 256 printable ASCII characters without blanks", key="accessKey")
        if len(self.secret_key) < KEY_MIN_LENGTH:
            raise ConfigError(f"'secretKey' must be at least {KEY_MIN_LENGTH} characters long", key="secretKey")


@attrs.frozen(kw_only=True)
class AclSection:
    """``acl:`` — access control. Off until ``acl.enable`` or ``authenticators: [acl]`` switches it on."""

    FEATURE: ClassVar = "acl"

    enable: bool = option(False, rocketmq="aclEnable")
    """Accepts only requests that are signed by an account with the right to make them. ``acl`` in ``authenticators`` has the
    same effect."""
    file: str | None = option(None)
    """File of accounts in the form of RocketMQ's ``plain_acl.yml``. If a request creates an account, the broker writes the
    account to this file. null is ``flint/acl/plain_acl.yml`` in the store's folder."""
    folder: str | None = option(None)
    """Folder of account files, like RocketMQ's ``conf/acl``. Its ``.yml`` and ``.yaml`` files are read in addition to
    ``acl.file``."""
    accounts: tuple[AclAccount, ...] = option((), secret=True)
    """Accounts in the configuration, with the field names of ``plain_acl.yml``. If a file of accounts has an account with the
    same access key, the file's account is used."""
    global_white_remote_addresses: tuple[str, ...] = option(())
    """With ``acl.compat: safe``, the only addresses from which requests are accepted (empty for all). With ``acl.compat:
    strict``, addresses from which requests need neither a signature nor a permission. The ``globalWhiteRemoteAddresses`` of the
    account files are added."""
    compat: str = option("safe", choices=("safe", "strict"))
    """Meaning of the lists of addresses in access control. With ``safe``, the lists only restrict access. With ``strict``,
    requests from listed addresses need neither a signature nor a permission, as in RocketMQ."""
    file_mode: str = option("refuse", choices=("refuse", "warn", "ignore"))
    """Reaction to an account file with secret keys that users other than the file's owner can read or write. ``chmod 600``
    takes these permissions away."""
    reload_interval_ms: int = option(5_000, minimum=100, maximum=DAY_MS)
    """Interval between two checks of the account files. A changed account file takes effect without a restart."""
    list_accounts: bool = option(False)
    """Answers request 54 (mqadmin getAclConfig) of administrators, without secret keys. If false, request 54 is not
    supported."""
    replay_window_ms: int = option(0, minimum=0, maximum=DAY_MS)
    """Largest difference between the time in a signed request and the server's time. Requests with a larger difference and
    repeated requests are refused. Only FlintMQ's client puts the time into its requests, so with this check requests of all
    other clients are refused. 0 switches the check of the time off."""
    extra_codes: tuple[str, ...] = option(
        (), pattern=r"-?\d{1,9}=(public|client|admin)", expects="a list of CODE=public, CODE=client or CODE=admin"
    )
    """Access to the request codes of plugins, ``CODE=public``, ``CODE=client`` or ``CODE=admin`` each. Request codes of plugins
    that are not listed are refused."""


def _tls_mode(text: str) -> str:
    return "required" if text == "enforcing" else text


@attrs.frozen(kw_only=True)
class TlsSection:
    """``listen.tls:`` — encrypted connections, for the broker's ports and the name server's."""

    mode: str = option(
        "auto",
        rocketmq="tls.server.mode",
        choices=("auto", "disabled", "permissive", "required"),
        also=("enforcing",),
        converter=_tls_mode,
    )
    """Use of TLS. ``required`` (RocketMQ: enforcing) accepts only TLS. ``permissive`` accepts TLS and plain connections.
    ``disabled`` accepts only plain connections. ``auto`` is ``required`` with a certificate and ``disabled`` without."""
    certificate: str | None = option(None, rocketmq="tls.server.certPath")
    """PEM file of the certificate chain for TLS. The file is read again when it changes."""
    key: str | None = option(None, rocketmq="tls.server.keyPath")
    """PEM file of the private key for TLS; null if the file ``certificate`` contains the key."""
    key_password: Secret | None = option(None, rocketmq="tls.server.keyPassword", secret=True)  # noqa: RUF009
    """Password of the private key for TLS."""
    client_ca: str | None = option(None, rocketmq="tls.server.trustCertPath")
    """PEM file of the authorities whose client certificates are accepted; null requests no client certificates."""
    require_client_certificate: bool = option(False, rocketmq="tls.server.authClient")
    """Refuses clients that have no certificate of an authority in ``client_ca``."""

    def __attrs_post_init__(self) -> None:
        if self.mode in ("permissive", "required") and self.certificate is None:
            raise ConfigError(f"'listen.tls.mode' {self.mode} needs 'listen.tls.certificate'", key="listen.tls.mode")
        if self.require_client_certificate and self.client_ca is None:
            raise ConfigError(
                "'listen.tls.require_client_certificate' needs 'listen.tls.client_ca'",
                key="listen.tls.require_client_certificate",
            )

    @property
    def mode_in_force(self) -> str:
        """Return the mode of encrypted connections; if the setting is ``auto``, the result is ``required`` or ``disabled``."""
        if self.mode == "auto":
            return "disabled" if self.certificate is None else "required"
        return self.mode
