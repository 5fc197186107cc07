"""Secrets: found where the file says they are, and never in anything that is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.config.errors import ConfigError
from flintmq.plugins.spark.pipeline.references import Redactor, Reference, names_a_secret


def test_a_secret_of_a_pipeline_is_read_from_the_environment_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways that container platforms hand over secrets; a file's last line break is no part of it."""
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    monkeypatch.setenv("PW", "pa ss")
    assert Reference(env="PW").resolve() == "pa ss"
    assert Reference(file=file).resolve() == "s3cret"


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"x" * 70_000])
def test_the_error_about_an_unreadable_secret_names_the_secret_file(tmp_path: Path, content: bytes | None) -> None:
    """A database would answer an empty password with an error that does not name the cause."""
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match="password"):
        Reference(file=file).resolve()
    with pytest.raises(ConfigError, match="environment variable PW is not set"):
        Reference(env="PW").resolve()


def test_a_secret_reference_must_name_either_an_environment_variable_or_a_file() -> None:
    """With two places, users could not know which of them counts."""
    with pytest.raises(ConfigError, match="either"):
        Reference(env="A", file=Path("b"))
    with pytest.raises(ConfigError, match="either"):
        Reference()


def test_resolved_secrets_are_replaced_by_asterisks_in_printed_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans and errors of Java repeat options; a secret may also be part of another secret."""
    monkeypatch.setenv("SHORT", "abc")
    monkeypatch.setenv("LONG", "abcdef")
    redactor = Redactor()
    assert redactor.reveal(Reference(env="SHORT")) == "abc"
    assert redactor.reveal(Reference(env="LONG")) == "abcdef"
    assert redactor.clean("jdbc:x;password=abcdef user=abc") == "jdbc:x;password=*** user=***"


def test_options_that_hold_secrets_are_recognized_by_their_names() -> None:
    """The options of JDBC, object stores and registries that must not stand in a file."""
    assert all(map(names_a_secret, ("password", "fs.s3a.secret.key", "accessKey", "oauthToken", "sslPrivateKey")))
    assert not any(map(names_a_secret, ("user", "url", "partitionColumn", "subscribe", "batchsize")))
