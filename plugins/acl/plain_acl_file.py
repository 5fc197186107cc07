"""Reads and writes files in the form of RocketMQ's ``plain_acl.yml``; only their owner may read what is written."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from pathlib import Path
from typing import Any, Final

import attrs
import yaml

from flintmq.config.errors import ConfigError
from flintmq.config.loading.binding import bind_model
from flintmq.config.loading.yaml_source import YAML_MAX_BYTES, parse_yaml
from flintmq.config.sections.models import AclAccount
from flintmq.core.errors import StoreError
from flintmq.core.io.paths import sync_folder

log = logging.getLogger("flintmq.acl")

OWNER_ONLY: Final = 0o600
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@attrs.frozen(kw_only=True)
class FileVersion:
    """How often and when accounts were changed over the wire."""

    counter: int = 0
    timestamp_ms: int = attrs.field(alias="timestamp", default=0)
    """Since 1970."""
    state_version: int = attrs.field(alias="stateVersion", default=0)
    """A field that newer brokers write; it is kept and never used."""

    def to_wire(self) -> dict[str, int]:
        return {"counter": self.counter, "timestamp": self.timestamp_ms}


@attrs.frozen(kw_only=True)
class PlainAcl:
    """The content of a file."""

    global_white: tuple[str, ...] = attrs.field(alias="globalWhiteRemoteAddresses", default=())
    """Patterns of addresses."""
    accounts: tuple[AclAccount, ...] = ()
    versions: tuple[FileVersion, ...] = attrs.field(alias="dataVersion", default=())
    """At most one."""

    @property
    def version(self) -> FileVersion:
        return self.versions[0] if self.versions else FileVersion()


@attrs.frozen
class ReadFile:
    """A file with the digest of the bytes it was read from."""

    path: Path
    digest: str
    content: PlainAcl


def read_plain_acl(path: Path, *, file_mode: str) -> ReadFile:
    """Read one file.

    Args:
        path: the file.
        file_mode: ``refuse``, ``warn`` or ``ignore`` when others than its owner may read or write it.

    Raises:
        ConfigError: it cannot be read, is malformed (says the line, never a value), or its mode is too wide.
    """
    try:
        with path.open("rb") as stream:
            mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
            raw = stream.read(YAML_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", key="acl.file", file=str(path)) from error
    if mode & _OTHERS and file_mode != "ignore":
        problem = f"others than its owner may use it (mode {mode:04o}): chmod 600"
        if file_mode == "refuse":
            raise ConfigError(f"{problem}, or acl.file_mode: warn", key="acl.file_mode", file=str(path))
        log.warning("%s: %s", path, problem)
    content = bind_model(parse_yaml(raw, str(path)), PlainAcl, "acl")
    return ReadFile(path, hashlib.sha256(raw).hexdigest(), content)


def write_plain_acl(path: Path, content: PlainAcl) -> None:
    """Replace a file durably; only its owner may read it. Comments in the old file are lost.

    Raises:
        StoreError: the disk refused; the old file is still there.
    """
    text = yaml.safe_dump(_as_plain(content), sort_keys=False, allow_unicode=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error


def _as_plain(content: PlainAcl) -> dict[str, Any]:
    found: dict[str, Any] = {
        "globalWhiteRemoteAddresses": list(content.global_white),
        "accounts": [_account(account) for account in content.accounts],
    }
    if content.versions:
        found["dataVersion"] = [content.version.to_wire()]
    return found


def _account(account: AclAccount) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "accessKey": account.access_key,
        "secretKey": account.secret_key.reveal(),
        "whiteRemoteAddress": account.white_remote_address,
        "admin": bool(account.admin),
        "defaultTopicPerm": account.default_topic_perm,
        "defaultGroupPerm": account.default_group_perm,
        "topicPerms": list(account.topic_perms),
        "groupPerms": list(account.group_perms),
    }
    return {name: value for name, value in fields.items() if value not in (None, [])}
