"""Retry and dead letters: what becomes of messages that a consumer refuses (docs/internals/algorithms.md)."""
