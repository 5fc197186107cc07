"""Timers: messages that are delivered at the time they name, to the millisecond (docs/later.md)."""
