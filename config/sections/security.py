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
"""RocketMQ refuses access keys and secret keys of six characters or fewer."""
_KEY: Final = re.compile(r"[\x21-\x7e]{7,256}")


@attrs.frozen(kw_only=True)
class AclAccount:
    """One account, under the names of RocketMQ's ``plain_acl.yml``."""

    access_key: str = attrs.field(alias="accessKey")
    """The account's name; sent with every request."""
    secret_key: Secret = attrs.field(alias="secretKey", repr=False)
    """What its requests are signed with; never sent."""
    white_remote_address: str | None = attrs.field(alias="whiteRemoteAddress", default=None)
    """The addresses it may come from; empty for any. With ``acl.compat: strict`` those that need no signature."""
    admin: bool | None = attrs.field(default=None)
    """May do everything, administration included."""
    default_topic_perm: str | None = attrs.field(alias="defaultTopicPerm", default=None)
    """DENY, PUB, SUB or PUB|SUB, for topics that are not listed; empty is DENY."""
    default_group_perm: str | None = attrs.field(alias="defaultGroupPerm", default=None)
    """The same for consumer groups."""
    topic_perms: tuple[str, ...] = attrs.field(alias="topicPerms", default=())
    """``topic=PERM``."""
    group_perms: tuple[str, ...] = attrs.field(alias="groupPerms", default=())
    """``group=PERM``."""

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
    """Every request must be signed by an account that may make it; the same as ``acl`` among the authenticators."""
    file: str | None = option(None)
    """A file in the form of RocketMQ's ``plain_acl.yml``, to which accounts made over the wire are written too; null is
    ``flint/acl/plain_acl.yml`` in the store's folder."""
    folder: str | None = option(None)
    """A folder, as RocketMQ's ``conf/acl``: every ``.yml`` and ``.yaml`` file in it is read as well."""
    accounts: tuple[AclAccount, ...] = option((), secret=True)
    """Accounts written here, with the names of ``plain_acl.yml``; one of the same key in a file replaces it."""
    global_white_remote_addresses: tuple[str, ...] = option(())
    """With ``compat: safe`` the only addresses that requests are taken from (none listed: all); with ``strict`` addresses
    that need no key at all. Joined with the ``globalWhiteRemoteAddresses`` of the files."""
    compat: str = option("safe", choices=("safe", "strict"))
    """``safe``: lists of addresses restrict and never grant. ``strict``: they let requests pass unsigned, as in RocketMQ."""
    file_mode: str = option("refuse", choices=("refuse", "warn", "ignore"))
    """What happens when a file with secret keys can be read or written by others than its owner (``chmod 600``)."""
    reload_interval_ms: int = option(5_000, minimum=100, maximum=DAY_MS)
    """How often the files are looked at; a changed one counts without a restart."""
    list_accounts: bool = option(False)
    """Answers request 54 (mqadmin getAclConfig) to administrators, without secret keys; otherwise it is not supported."""
    replay_window_ms: int = option(0, minimum=0, maximum=DAY_MS)
    """Refuses requests that are older or that were seen before. Only FlintMQ's own client dates its requests, so every other
    client is refused; 0 switches it off."""
    extra_codes: tuple[str, ...] = option(
        (), pattern=r"-?\d{1,9}=(public|client|admin)", expects="a list of CODE=public, CODE=client or CODE=admin"
    )
    """Who may use the request codes of plugins; one that is not listed is refused."""


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
    """``required`` (RocketMQ: enforcing) takes TLS only, ``permissive`` decides by a connection's first byte, ``disabled``
    takes none; ``auto`` is ``required`` with a certificate and ``disabled`` without."""
    certificate: str | None = option(None, rocketmq="tls.server.certPath")
    """The certificate chain, a PEM file; read again when it changes."""
    key: str | None = option(None, rocketmq="tls.server.keyPath")
    """The private key, a PEM file; null when it is in the certificate's file."""
    key_password: Secret | None = option(None, rocketmq="tls.server.keyPassword", secret=True)  # noqa: RUF009
    """Opens the private key."""
    client_ca: str | None = option(None, rocketmq="tls.server.trustCertPath")
    """PEM file of the authorities whose client certificates are accepted; null asks for none."""
    require_client_certificate: bool = option(False, rocketmq="tls.server.authClient")
    """Refuses clients without a certificate of ``client_ca``."""

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
        """Return the mode, with ``auto`` decided."""
        if self.mode == "auto":
            return "disabled" if self.certificate is None else "required"
        return self.mode
