"""Reading a store's files: what is there, how far it may be read, which bytes a task reads, and offsets of it."""

from __future__ import annotations

from flintmq.plugins.spark.store.transport import StoreTransport

__all__ = ["StoreTransport"]
