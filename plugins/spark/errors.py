"""Errors of the Spark plugin. Spark shows their text on the driver, so each text names the option to change."""

from __future__ import annotations

from flintmq.core.errors import FlintError


class SparkPluginError(FlintError):
    """Base class of the Spark plugin's errors."""


class OptionError(SparkPluginError):
    """An option of a Spark read or write is unknown, or its value cannot be used."""


class SchemaError(SparkPluginError):
    """A column of a Spark schema is unknown, or has another type than the column of messages with its name."""


class RuntimeMissingError(SparkPluginError):
    """PySpark, pyarrow or Java is missing. The error's text says what to install."""


class UnknownTopicError(SparkPluginError):
    """A topic that a Spark read or a pipeline names does not exist."""


class BrokerAwayError(SparkPluginError):
    """A broker with messages that a Spark read needs does not answer."""


class UnsettledStoreError(SparkPluginError):
    """The end up to which a store can be read is unknown. Either a broker is writing to the store, or the log ends in an
    incomplete record, and no file in the store records a safe end."""


class BadRecordError(SparkPluginError):
    """The bytes at a position of the commit log, at which a record must begin, are not a valid record."""


class RowError(SparkPluginError):
    """A row of a Spark write cannot become a message. The error's text says which row and why."""


class DataLossError(SparkPluginError):
    """Messages to be read no longer exist, because retention deleted the messages or the commit log was truncated."""


class OutOfRangeError(OptionError, DataLossError):
    """An option names an offset without a message. The message was deleted, or is not written yet."""


class CheckpointError(SparkPluginError):
    """An offset in a query's checkpoint belongs to another transport, to another store, or to messages of this store that were
    truncated."""


class MaintenanceError(SparkPluginError):
    """A maintenance job, such as a rebuild or an export, cannot run on a store in the requested way. The error's text says
    which way is possible."""
