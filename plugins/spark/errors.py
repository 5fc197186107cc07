"""What the Spark plugin raises on purpose. Spark shows the text on the driver, so each names the option to change."""

from __future__ import annotations

from flintmq.core.errors import FlintError


class SparkPluginError(FlintError):
    """The root of what the Spark plugin raises."""


class OptionError(SparkPluginError):
    """An option is unknown, or its value cannot be used."""


class SchemaError(SparkPluginError):
    """A column is unknown, or asked for with another type."""


class RuntimeMissingError(SparkPluginError):
    """PySpark, pyarrow or a Java to run on is not there; says what to install."""


class UnknownTopicError(SparkPluginError):
    """No queue of a topic that was asked for exists."""


class BrokerAwayError(SparkPluginError):
    """A broker that has messages to be read does not answer."""


class UnsettledStoreError(SparkPluginError):
    """The store is being written, or ends in something torn, and nothing says how far it may be read."""


class BadRecordError(SparkPluginError):
    """Bytes that should be a record are none."""


class RowError(SparkPluginError):
    """A row that cannot become a message; says which."""


class DataLossError(SparkPluginError):
    """Messages that should be read are gone: retention took them, or the log was cut."""


class OutOfRangeError(OptionError, DataLossError):
    """An option names a place that holds no messages: they are gone, or are not there yet."""


class CheckpointError(SparkPluginError):
    """An offset that belongs to another transport, another store, or another history of this one."""


class MaintenanceError(SparkPluginError):
    """The work cannot be done on this store, or not in this way; says what can."""
