"""Retries and dead letters of messages that a consumer refuses (docs/internals/algorithms.md)."""
