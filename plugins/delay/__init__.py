"""Delay levels: messages that are delivered a fixed time after they were sent (docs/later.md)."""
