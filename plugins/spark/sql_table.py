"""Tables of Spark's catalog: ``CREATE TABLE t USING flintmq OPTIONS (…)``.

Spark passes a table's options to the source only when Spark creates the table. Each option is then passed under two names
(``x`` and ``option.x``), with other properties (``provider``, ``owner``, ``location``). Reads and writes of the table get its
columns but not its options. This module therefore stores the options in the metadata of the columns, which the catalog keeps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from flintmq.plugins.spark.errors import OptionError
from flintmq.plugins.spark.options import READ_OPTIONS, WRITE_OPTIONS, Option
from flintmq.plugins.spark.schema import nearest

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_KEY: Final = "flintmq.options"
_DOUBLED: Final = "option."
_ADDRESSES: Final = frozenset({"path", "nameserver", "brokeraddr"})


def _names(table: Mapping[str, Option]) -> frozenset[str]:
    return frozenset(name.lower() for one in table.values() for name in (one.name, *one.aliases))


_READ: Final = _names(READ_OPTIONS)
_WRITE: Final = _names(WRITE_OPTIONS)


def options_of_new_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a catalog table if Spark is creating the table; None if Spark is beginning a read or a write.

    Args:
        given: the options that Spark passes to the data source.

    Raises:
        OptionError: an option is known neither to reads nor to writes.
    """
    if "provider" not in given or "owner" not in given:
        return None
    found = {name[len(_DOUBLED) :]: value for name, value in given.items() if name.startswith(_DOUBLED)}
    if given.get("path"):  # A path from the clause LOCATION is only in ``path``, not in ``option.path``.
        found["path"] = given["path"]
    for name in found:
        if name.lower() not in _READ | _WRITE:
            known = [one.name for one in {**READ_OPTIONS, **WRITE_OPTIONS}.values()]
            raise OptionError(f"unknown option {name[:80]!r}{nearest(name, known)}")
    return found


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return a schema with the options of a catalog table in the metadata of its columns."""
    from pyspark.sql.types import StructField, StructType

    carried = {_KEY: json.dumps(dict(options))}
    return StructType([StructField(field.name, field.dataType, field.nullable, carried) for field in schema.fields])


def read_options(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a read. For a catalog table, the given options override the table's options, which are in the
    metadata of the schema."""
    return _together(given, schema, _READ)


def reads(table: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a catalog table that apply to reads."""
    return {name: value for name, value in table.items() if name.lower() in _READ}


def write_options(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a write. For a catalog table, the given options override the table's options, which are in the
    metadata of the schema."""
    return _together(given, schema, _WRITE)


def _together(given: Mapping[str, str], schema: StructType, known: frozenset[str]) -> dict[str, str]:
    own = {name.lower(): value for name, value in given.items()}
    carried = next((field.metadata[_KEY] for field in schema.fields if _KEY in field.metadata), None)
    # The schema of rows that were read from a catalog table contains the table's options.
    # The options of the table that was read are ignored if the rows are written to another address.
    if carried is None or not _ADDRESSES.isdisjoint(own):
        return dict(given)
    return {name.lower(): value for name, value in json.loads(carried).items() if name.lower() in known} | own
