"""Accounts come from files that others edit while the broker runs: what is wrong must change nothing, and nothing may leak."""

from __future__ import annotations

import logging
import pickle
import stat
from pathlib import Path

import pytest

from flintmq.config import ConfigError, load_text, rows, to_yaml
from flintmq.config.secret import Secret
from flintmq.config.sections.models import AclAccount, AclSection
from flintmq.core.errors import StoreError
from flintmq.core.kernel.ports.access import Permission
from flintmq.plugins.acl.account_store import AccountStore
from flintmq.remoting.processors.needs import group_need, topic_need
from flintmq.testing.clock import ManualClock

SECRET = "hunter2-hunter2"
TEXT = f"""\
globalWhiteRemoteAddresses:
accounts:
- accessKey: admin-key
  secretKey: {SECRET}
  whiteRemoteAddress:
  admin: true
- accessKey: reader-key
  secretKey: 12345678
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - A=PUB|SUB
  - B=SUB
dataVersion:
- counter: 3
  timestamp: 1700000000000
"""


def write(path: Path, text: str = TEXT, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def store_of(path: Path, **section: object) -> AccountStore:
    return AccountStore(AclSection(**section), path, ManualClock())  # type: ignore[arg-type]


def account(key: str = "writer-key", **more: object) -> AclAccount:
    return AclAccount(accessKey=key, secretKey=Secret(SECRET), **more)  # type: ignore[arg-type]


def test_an_account_file_of_rocketmq_is_read(tmp_path: Path) -> None:
    """Its names, its empty values, numbers as secrets, permissions and the version."""
    store = store_of(write(tmp_path / "plain_acl.yml"))
    reader = store.table.accounts["reader-key"]
    assert reader.secret == Secret("12345678")
    assert store.table.accounts["admin-key"].admin
    assert not reader.admin
    assert (
        reader.first_lacking([topic_need("A", Permission.PUB), topic_need("B", Permission.SUB), group_need("G")])
        is None
    )
    assert reader.first_lacking([topic_need("B", Permission.PUB)]) == topic_need("B", Permission.PUB)
    assert reader.first_lacking([topic_need("C", Permission.SUB)]) == topic_need("C", Permission.SUB)
    assert [version.counter for version in store.versions().values()] == [3]


def test_default_permissions_do_not_cover_the_brokers_internal_topics(tmp_path: Path) -> None:
    """Messages of every topic lie there: only an entry of its own counts."""
    section = AclSection(
        accounts=(
            account("reader-key", admin=True),
            account("other-key", defaultTopicPerm="SUB"),
            account("named-key", topicPerms=("RMQ_SYS_TRANS_HALF_TOPIC=SUB",)),
        )
    )
    accounts = AccountStore(section, tmp_path / "none.yml", ManualClock()).table.accounts
    need = topic_need("RMQ_SYS_TRANS_HALF_TOPIC", Permission.SUB)
    assert accounts["other-key"].first_lacking([topic_need("T", Permission.SUB)]) is None
    assert accounts["other-key"].first_lacking([need]) == need
    assert accounts["named-key"].first_lacking([need]) is None


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o604, 0o640])
def test_an_account_file_that_other_users_can_read_is_refused(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A secret key that the whole machine reads is none; the operator may insist."""
    path = write(tmp_path / "plain_acl.yml", mode=mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        store_of(path)
    with caplog.at_level(logging.WARNING, "flintmq.acl"):
        assert store_of(path, file_mode="warn").table.accounts
    assert "chmod 600" in caplog.text
    caplog.clear()
    assert store_of(path, file_mode="ignore").table.accounts
    assert not caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "accounts: [{accessKey: short, secretKey: long-enough}]",
        "accounts: [{accessKey: long-enough, secretKey: short}]",
        "accounts: [{accessKey: long-enough}]",
        "accounts: [{accessKey: long-enough, secretKey: long-enough, admn: true}]",
        "accounts: [{accessKey: long-enough, secretKey: long-enough, defaultTopicPerm: ALL}]",
        "accounts: [{accessKey: long-enough, secretKey: long-enough, topicPerms: [A]}]",
        "accounts: [{accessKey: long-enough, secretKey: long-enough, whiteRemoteAddress: 10.0}]",
        "globalWhiteRemoteAddresses: [10.0.0.256]",
        "accounts: &a [*a]",
        "!!python/object/apply:os.system [id]",
        "{",
    ],
)
def test_the_error_message_about_an_invalid_account_file_contains_no_secret(tmp_path: Path, text: str) -> None:
    """A half-read file would lock people out or let them in; the message goes into logs, so it holds no secret."""
    path = write(tmp_path / "plain_acl.yml", text)
    with pytest.raises(ConfigError) as raised:
        store_of(path)
    assert "long-enough, secret" not in str(raised.value)


def test_a_configuration_without_accounts_is_refused(tmp_path: Path) -> None:
    """Nobody could ever come in again."""
    with pytest.raises(ConfigError, match="without any account"):
        store_of(tmp_path / "none.yml")


def test_an_access_key_in_two_files_is_refused(tmp_path: Path) -> None:
    """Otherwise the order of files would decide about rights; the configuration's own account gives way, as documented."""
    path = write(tmp_path / "plain_acl.yml")
    write(tmp_path / "acl" / "more.yml", f"accounts: [{{accessKey: third-key, secretKey: {SECRET}}}]")
    section = {"folder": str(tmp_path / "acl"), "accounts": (account("reader-key", admin=True),)}
    store = store_of(path, **section)
    assert set(store.table.accounts) == {"admin-key", "reader-key", "third-key"}
    assert not store.table.accounts["reader-key"].admin
    write(tmp_path / "acl" / "again.yaml", f"accounts: [{{accessKey: third-key, secretKey: {SECRET}}}]")
    with pytest.raises(ConfigError, match="already"):
        store_of(path, **section)


def test_an_account_file_is_reloaded_after_a_change_unless_its_new_content_is_invalid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Hot reload by content; the same mistake is logged once, not every five seconds."""
    path = write(tmp_path / "plain_acl.yml")
    store = store_of(path)
    path.touch()
    assert not store.reload()
    write(path, TEXT.replace("reader-key", "second-key"))
    assert store.reload()
    assert set(store.table.accounts) == {"admin-key", "second-key"}
    for wrong in ("accounts: [", "accounts: []"):
        caplog.clear()
        write(path, wrong)
        assert not store.reload()
        assert not store.reload()
        assert set(store.table.accounts) == {"admin-key", "second-key"}
        assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
    write(path, TEXT)
    assert store.reload()
    assert "reader-key" in store.table.accounts


def test_changed_accounts_are_written_with_mode_600(tmp_path: Path) -> None:
    """50, 51 and 53 write the file: whole, mode 600, with the next version; another process reads the same."""
    path = tmp_path / "flint" / "acl" / "plain_acl.yml"
    inline = (account("admin-key", admin=True),)
    store = store_of(path, accounts=inline)
    store.update(account("writer-key", topicPerms=("A=PUB",)))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert store.table.accounts["writer-key"].first_lacking([topic_need("A", Permission.PUB)]) is None
    store.update(account("writer-key", defaultTopicPerm="SUB"))
    assert store.table.accounts["writer-key"].first_lacking([topic_need("A", Permission.PUB)]) is not None
    store.set_global_white(["10.0.0.*"], str(path))
    again = store_of(path, accounts=inline)
    assert again.table.global_white_texts == ("10.0.0.*",)
    assert again.table.written == store.table.written
    assert [version.counter for version in again.versions().values()] == [3]
    store.delete("writer-key")
    assert set(store.table.accounts) == {"admin-key"}
    assert again.reload()
    assert [entry.name for entry in path.parent.iterdir()] == ["plain_acl.yml"]


def test_unsafe_or_invalid_account_changes_are_refused_and_do_not_change_the_account_file(tmp_path: Path) -> None:
    """Nobody locks everybody out, writes elsewhere, or overwrites what an operator just edited."""
    path = write(tmp_path / "plain_acl.yml")
    store = store_of(path, accounts=(account("inline-key"),))
    before = path.read_bytes()
    for change in (
        lambda: store.delete("admin-key"),
        lambda: store.update(account("admin-key", admin=False)),
        lambda: store.delete("inline-key"),
        lambda: store.delete("missing-key"),
        lambda: store.set_global_white(["10.0.0.1"], str(tmp_path / "elsewhere.yml")),
        lambda: store.set_global_white(["10.0.0.1"], str(tmp_path / "sub" / ".." / "plain_acl.yml")),
        lambda: store.set_global_white(["10.0"], None),
        lambda: store.update(account("writer-key", topicPerms=("A",))),
    ):
        with pytest.raises(ConfigError):
            change()
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["plain_acl.yml"]
    write(path, TEXT.replace("reader-key", "edited-key"))
    store.update(account("writer-key"))
    assert set(store.table.accounts) == {"admin-key", "edited-key", "inline-key", "writer-key"}
    write(path, "accounts: [")
    with pytest.raises(ConfigError, match="cannot be used"):
        store.update(account("writer-key"))
    assert path.read_text() == "accounts: ["


def test_a_failed_write_of_the_account_file_changes_no_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An account that is in force but not on disk would be gone after a restart."""
    store = store_of(write(tmp_path / "plain_acl.yml"))

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError):
        store.update(account("writer-key"))
    assert "writer-key" not in store.table.accounts
    assert store_of(tmp_path / "plain_acl.yml").table.written == store.table.written


def test_the_secret_key_of_an_account_is_never_printed_or_exported(tmp_path: Path) -> None:
    """However an account is printed, logged, shown or pickled: the secret key is not in it."""
    text = f"""
acl:
  accounts:
  - accessKey: admin-key
    secretKey: {SECRET}
    admin: true
namesrv:
  access_key: admin-key
  secret_key: {SECRET}
listen:
  tls:
    key_password: {SECRET}
"""
    loaded = load_text(text)
    assert loaded.config.acl.accounts[0].secret_key.reveal() == SECRET
    store = AccountStore(loaded.config.acl, tmp_path / "none.yml", ManualClock())
    shown = [
        repr(loaded.config),
        str(loaded),
        repr(rows(loaded)),
        to_yaml(loaded.config),
        repr(store.table),
        f"{store.table}",
    ]
    shown += [f"{loaded.config.namesrv.secret_key}", "%s" % loaded.config.namesrv.secret_key]  # noqa: UP031
    assert not [found for found in shown if SECRET in found]
    assert "admin-key" in repr(store.table)
    with pytest.raises(TypeError):
        pickle.dumps(loaded.config.acl)
