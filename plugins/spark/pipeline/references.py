"""Reads the secrets of a pipeline, and removes them from texts. The pipeline's file only names environment variables or files
that contain the secrets."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import Final

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.loading.raw import DEFAULT, Origin
from flintmq.config.secret import SHOWN

SECRET_FILE_MAX_BYTES: Final = 64 * 1024
"""Maximum size of a file with a secret, in bytes. A password or a key is much smaller."""

_SECRET_NAME = re.compile(r"password|passwd|secret|token|credential|private.?key|access.?key", re.IGNORECASE)


@attrs.frozen(kw_only=True)
class Reference:
    """A reference to a secret: ``{env: DB_PASSWORD}`` for a secret in an environment variable, or ``{file: /run/secrets/db}``
    for a secret in a file."""

    env: str | None = None
    """Name of the environment variable that has the secret."""
    file: Path | None = None
    """Path of the file that has the secret. A line break at the file's end is ignored."""

    def __attrs_post_init__(self) -> None:
        if (self.env is None) is (self.file is None):
            raise ConfigError("a secret is either {env: NAME} or {file: PATH}")

    @property
    def place(self) -> str:
        """The environment variable or the file that contains the secret, in words for error texts."""
        return f"the environment variable {self.env}" if self.env is not None else f"the file {self.file}"

    def resolve(self) -> str:
        """Read the secret from its environment variable or file, and return it.

        Raises:
            ConfigError: the variable or file is missing, empty, too large, or not text.
        """
        if self.env is not None:
            found = os.environ.get(self.env)
        else:
            assert self.file is not None
            content = read_file(self.file, SECRET_FILE_MAX_BYTES, self.place)
            found = as_text(content, self.place).rstrip("\r\n")
        if not found:
            raise ConfigError(f"{self.place} is {'empty' if found == '' else 'not set'}")
        return found


def read_file(file: Path, max_bytes: int, what: str) -> bytes:
    """Return the content of a file. Raises ConfigError, whose text names the file as ``what``, if the file cannot be read or is
    larger than ``max_bytes``."""
    try:
        with file.open("rb") as stream:
            content = stream.read(max_bytes + 1)
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror or error}") from error
    if len(content) > max_bytes:
        raise ConfigError(f"{what} has more than {max_bytes} bytes")
    return content


def as_text(content: bytes, what: str) -> str:
    """Return the content of a file as text. Raises ConfigError if the content is not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what} is not UTF-8") from error


Text = str | Reference
"""Value of an option: a plain text, or a reference to a secret."""


def names_a_secret(option: str) -> bool:
    """Return whether the name of an option shows that the option's value is a secret, such as a password. A secret must not be
    in plain text in a file."""
    return _SECRET_NAME.search(option) is not None


class Redactor:
    """Removes the secrets of a pipeline from texts. Not thread-safe while secrets are added."""

    def __init__(self) -> None:
        self._secrets: set[str] = set()

    def reveal(self, text: Text) -> str:
        """Return the value of an option: a plain text, or the secret to which a reference refers. After this call,
        :meth:`clean` removes the secret from texts.

        Raises:
            ConfigError: see :meth:`Reference.resolve`.
        """
        if isinstance(text, str):
            return text
        secret = text.resolve()
        self._secrets.add(secret)
        return secret

    def clean(self, text: str) -> str:
        """Return a text in which ``***`` replaces each known secret."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, SHOWN)
        return text


EXTRAS: Final = {
    "spark": ("pyspark", ".[spark]"),
    "avro": ("fastavro", ".[avro]"),
    "protobuf": ("google.protobuf", ".[protobuf]"),
    "delta": ("deltalake", ".[delta]"),
}
"""Module to import and requirement for pip, keyed by the optional feature that needs the module."""


def require(what: str, wanted_by: str, origin: Origin = DEFAULT) -> None:
    """Raise ConfigError if an optional package is not installed.

    Args:
        what: a key of ``EXTRAS``.
        wanted_by: the feature that needs the package, for the error.
        origin: the line of the key that asks for the feature.

    Raises:
        ConfigError: the package is missing. The text says what to install.
    """
    module, extra = EXTRAS[what]
    try:
        is_installed = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # find_spec() raises ModuleNotFoundError if a parent package of the module is missing.
        is_installed = False
    if not is_installed:
        raise origin.error(f"{wanted_by} needs {module}: pip install '{extra}' in FlintMQ's folder", key=what)
