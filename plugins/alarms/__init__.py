"""Raises the alarms about the store, the consumer groups and the process (docs/alarms.md)."""
