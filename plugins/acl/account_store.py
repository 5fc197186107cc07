"""Reads the accounts from the configuration and from files, reads changed account files again, and writes changes of accounts.

The files have the form of RocketMQ's ``plain_acl.yml``. Written files are readable by their owner only.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import yaml

from flintmq.config.errors import ConfigError
from flintmq.config.loading.binding import bind_model
from flintmq.config.loading.yaml_source import YAML_MAX_BYTES, parse_yaml
from flintmq.config.sections.models import AclAccount, AclSection
from flintmq.core.errors import StoreError
from flintmq.core.io.clock import Clock
from flintmq.core.io.paths import sync_folder
from flintmq.core.log_events import event_log
from flintmq.plugins.acl.account import Account, AddressPatterns, parse_addresses

log = event_log("flintmq.acl")
OWNER_ONLY: Final = 0o600
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@attrs.frozen
class AccountTable:
    """The accounts that apply to requests, and the address patterns for all accounts. Immutable: after a change of an account,
    another object replaces this object."""

    accounts: Mapping[str, Account]
    written: Mapping[str, AclAccount]
    """Accounts as they are written in the configuration and the account files, keyed by access key."""
    global_white_texts: tuple[str, ...]
    global_white: AddressPatterns


class AccountStore:
    """Reads and changes accounts. Loop thread; methods may read or write small files.

    Args:
        section: the section ``acl`` of the configuration.
        file: the file of new accounts; it need not exist.
        clock: the clock for the times of changes.

    Raises:
        ConfigError: a file or an account is not valid, or no account is given.
    """

    def __init__(self, section: AclSection, file: Path, clock: Clock) -> None:
        self._section = section
        self._file = file
        self._clock = clock
        self._files: dict[Path, ReadFile] = {}
        self._failed: str | None = None
        self._files = self._read_all()
        self.table = self._assemble(self._files)
        """The accounts that currently apply to requests, and the address patterns for all accounts."""
        if not self.table.accounts:
            raise ConfigError(
                f"access control is on without any account: add an administrator to {file} (mode 600) or to 'acl.accounts'",
                key="acl.accounts",
            )
        if self.table.global_white and section.compat == "safe":
            log.warning(
                "acl.only_from",
                "requests are accepted only from %(addresses)s (acl.compat: safe)",
                addresses=", ".join(self.table.global_white_texts),
            )

    # reading

    def reload(self) -> bool:
        """Read changed account files again; return whether the accounts were replaced. An error in a file is logged once."""
        try:
            files = self._read_all()
            if _digests(files) == _digests(self._files):
                self._failed = None
                return False
            table = self._assemble(files)
            if not table.accounts:
                raise ConfigError("the account files contain no account any more")
        except ConfigError as error:
            if str(error) != self._failed:
                self._failed = str(error)
                log.error("acl.not_read_again", "the accounts stay unchanged: %(error)s", error=error)
            return False
        self._files, self.table, self._failed = files, table, None
        log.info("acl.read_again", "%(accounts)d accounts read again", accounts=len(table.accounts))
        return True

    def _read_all(self) -> dict[Path, ReadFile]:
        paths = [self._file] if self._file.exists() or self._section.file is not None else []
        if self._section.folder is not None:
            try:
                inside = sorted(Path(self._section.folder).iterdir())
            except OSError as error:
                raise ConfigError(
                    f"'acl.folder' cannot be read: {error.strerror or error}",
                    key="acl.folder",
                    file=self._section.folder,
                ) from error
            paths += [path for path in inside if path.suffix in (".yml", ".yaml") and path not in paths]
        return {path: read_plain_acl(path, file_mode=self._section.file_mode) for path in paths}

    def _assemble(self, files: Mapping[Path, ReadFile]) -> AccountTable:
        written = {account.access_key: account for account in self._section.accounts}
        if len(written) != len(self._section.accounts):
            raise ConfigError("'acl.accounts' has two accounts with the same access key", key="acl.accounts")
        white = list(self._section.global_white_remote_addresses)
        owners: dict[str, Path] = {}
        for path, read in files.items():
            white += read.content.global_white
            for account in read.content.accounts:
                if account.access_key in owners:
                    raise ConfigError(
                        f"account {account.access_key} is in {owners[account.access_key]} already", file=str(path)
                    )
                owners[account.access_key] = path
                written[account.access_key] = account
        return AccountTable(
            accounts={key: Account.of(account) for key, account in written.items()},
            written=written,
            global_white_texts=tuple(white),
            global_white=parse_addresses(",".join(white)),
        )

    # changing

    def update(self, account: AclAccount) -> None:
        """Add an account. If a file has an account with the same access key, replace the account in this file.

        Raises:
            ConfigError: the account is malformed, or no administrator would be left.
            StoreError: the file cannot be written.
        """
        self._take_edits()
        path = self._home_of(account.access_key)
        content = self._content(path)
        others = [a for a in content.accounts if a.access_key != account.access_key]
        self._write(path, attrs.evolve(content, accounts=(*others, account)))

    def delete(self, access_key: str) -> None:
        """Remove an account.

        Raises:
            ConfigError: the account does not exist or is in ``acl.accounts``, or no administrator would be left.
            StoreError: the file cannot be written.
        """
        self._take_edits()
        if access_key not in self.table.accounts:
            raise ConfigError(f"there is no account {access_key[:80]}", key="acl.accounts")
        path = self._home_of(access_key)
        content = self._content(path)
        left = tuple(a for a in content.accounts if a.access_key != access_key)
        if len(left) == len(content.accounts) or any(a.access_key == access_key for a in self._section.accounts):
            raise ConfigError(
                f"account {access_key} is defined in the configuration: change 'acl.accounts' instead",
                key="acl.accounts",
            )
        self._write(path, attrs.evolve(content, accounts=left))

    def set_global_white(self, addresses: Sequence[str], path_text: str | None) -> None:
        """Replace a file's ``globalWhiteRemoteAddresses``.

        Args:
            addresses: address patterns.
            path_text: path of an account file, as in the answer to GET_BROKER_CLUSTER_ACL_INFO (52); None for ``acl.file``.

        Raises:
            ConfigError: a pattern is malformed, or the path does not name an account file.
            StoreError: the file cannot be written.
        """
        self._take_edits()
        known = {str(path): path for path in (self._file, *self._files)}
        path = known.get(path_text or str(self._file))
        if path is None:
            raise ConfigError("the path is not that of an account file", key="acl.file")
        content = self._content(path)
        self._write(path, attrs.evolve(content, globalWhiteRemoteAddresses=tuple(addresses)))

    def versions(self) -> dict[str, FileVersion]:
        """Return the version of each account file, keyed by path. The version of ``acl.file`` comes first.

        A version has the number of changes that requests have made to the file, and the time of the last change.
        """
        found = {str(self._file): self._content(self._file).version}
        return found | {str(path): read.content.version for path, read in self._files.items()}

    def _take_edits(self) -> None:
        """Read account files that users have edited, so that a change does not overwrite the edits. Raises ``ConfigError``."""
        self.reload()
        if self._failed is not None:
            raise ConfigError(f"the account files cannot be used: {self._failed}", key="acl.file")

    def _home_of(self, access_key: str) -> Path:
        for path, read in self._files.items():
            if any(account.access_key == access_key for account in read.content.accounts):
                return path
        return self._file

    def _content(self, path: Path) -> PlainAcl:
        read = self._files.get(path)
        return read.content if read is not None else PlainAcl()

    def _write(self, path: Path, content: PlainAcl) -> None:
        version = FileVersion(counter=content.version.counter + 1, timestamp=self._clock.now_ms())
        content = attrs.evolve(content, dataVersion=(version,))
        table = self._assemble(self._files | {path: ReadFile(path, "", content)})
        if not any(account.admin for account in table.accounts.values()):
            raise ConfigError("the change would leave no administrator among the accounts", key="acl.accounts")
        write_plain_acl(path, content)
        self._files[path] = read_plain_acl(path, file_mode=self._section.file_mode)
        self.table = self._assemble(self._files)


def _digests(files: Mapping[Path, ReadFile]) -> dict[Path, str]:
    return {path: read.digest for path, read in files.items()}


@attrs.frozen(kw_only=True)
class FileVersion:
    """The number and the time of the changes of accounts that requests have made."""

    counter: int = 0
    timestamp_ms: int = attrs.field(alias="timestamp", default=0)
    """Time of the last change of accounts by a request, in ms since 1970."""
    state_version: int = attrs.field(alias="stateVersion", default=0)
    """Field ``stateVersion`` of newer RocketMQ brokers. FlintMQ accepts the field in a file and ignores it."""

    def to_wire(self) -> dict[str, int]:
        return {"counter": self.counter, "timestamp": self.timestamp_ms}


@attrs.frozen(kw_only=True)
class PlainAcl:
    """The content of an account file: accounts, and address patterns for all accounts."""

    global_white: tuple[str, ...] = attrs.field(alias="globalWhiteRemoteAddresses", default=())
    """Address patterns that apply to all accounts."""
    accounts: tuple[AclAccount, ...] = ()
    versions: tuple[FileVersion, ...] = attrs.field(alias="dataVersion", default=())
    """Version of the account file, as a list of one element; empty if the file has no version."""

    @property
    def version(self) -> FileVersion:
        return self.versions[0] if self.versions else FileVersion()


@attrs.frozen
class ReadFile:
    """The content of an account file, and the digest of its bytes when it was read."""

    path: Path
    digest: str
    content: PlainAcl


def read_plain_acl(path: Path, *, file_mode: str) -> ReadFile:
    """Read an account file.

    Args:
        path: the file.
        file_mode: ``refuse``, ``warn`` or ``ignore``, for a file that users other than its owner may read or write.

    Raises:
        ConfigError: the file cannot be read or is malformed, or ``file_mode`` is ``refuse`` and other users may read or write
            the file. The text names a line, never a value.
    """
    try:
        with path.open("rb") as stream:
            mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
            raw = stream.read(YAML_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"the file of accounts cannot be read: {error.strerror or error}", key="acl.file", file=str(path)
        ) from error
    if mode & _OTHERS and file_mode != "ignore":
        problem = f"users other than its owner can read or write it (mode {mode:04o}): chmod 600"
        if file_mode == "refuse":
            raise ConfigError(
                f"{problem}, or accept this by setting acl.file_mode to warn", key="acl.file_mode", file=str(path)
            )
        log.warning("acl.file_exposed", "%(path)s: %(problem)s", path=path, problem=problem)
    content = bind_model(parse_yaml(raw, str(path)), PlainAcl, "acl")
    return ReadFile(path, hashlib.sha256(raw).hexdigest(), content)


def write_plain_acl(path: Path, content: PlainAcl) -> None:
    """Replace an account file durably, readable by its owner only. Comments in the old file are lost.

    Raises:
        StoreError: the file cannot be written. The old file is unchanged.
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
