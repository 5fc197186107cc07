"""The table of docs/compatibility.md, which features of the client work at which broker, is the one that the tests make."""

from __future__ import annotations

from pathlib import Path

import flintmq

from .matrix_table import MODULES, features, table

PAGE = Path(str(flintmq.__file__)).parent / "docs" / "compatibility.md"


def test_the_compatibility_page_has_the_table_of_client_features() -> None:
    assert table() in PAGE.read_text(), f"put this into {PAGE.name}:\n{table()}"


def test_each_test_of_a_client_feature_is_in_the_table_of_client_features() -> None:
    """A test that lost its decorator would still run nowhere."""
    named = [name for module in MODULES for name in vars(module) if name.startswith("test_")]
    assert len(named) == len(features()) == len({feature.name for feature in features()})
