"""Errors of the Spark plugin. Spark shows their text on the driver, so each text names the option to change."""

from __future__ import annotations

from flintmq.core.errors import FlintError


class SparkPluginError(FlintError):
    """Base class of the Spark plugin's errors."""


class OptionError(SparkPluginError):
    """An option is unknown, or its value cannot be used."""


class SchemaError(SparkPluginError):
    """A column is unknown, or a schema gives it another type."""


class RuntimeMissingError(SparkPluginError):
    """PySpark, pyarrow or a Java is missing. The text says what to install."""


class UnknownTopicError(SparkPluginError):
    """None of the requested topics has a queue."""


class BrokerAwayError(SparkPluginError):
    """A broker that holds messages to read does not answer."""


class UnsettledStoreError(SparkPluginError):
    """A store is being written or its log ends in an incomplete record, and no file records how far it is safe to read."""


class BadRecordError(SparkPluginError):
    """The bytes at a place where a record is expected are not a valid record."""


class RowError(SparkPluginError):
    """A row cannot become a message. The text says which row and why."""


class DataLossError(SparkPluginError):
    """Messages that should be read no longer exist: retention deleted them, or the commit log was truncated."""


class OutOfRangeError(OptionError, DataLossError):
    """An option names an offset at which there is no message: it was deleted, or is not written yet."""


class CheckpointError(SparkPluginError):
    """An offset belongs to another transport, to another store, or to another history of this store."""


class MaintenanceError(SparkPluginError):
    """A maintenance job cannot run on this store, or not in the requested way. The text says which way is possible."""
