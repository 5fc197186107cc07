"""Timers: messages that are delivered at the time that they name in a property (docs/later.md)."""
