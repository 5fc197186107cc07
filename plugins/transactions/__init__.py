"""Transactions: messages that are delivered once their producer has committed (docs/internals/algorithms.md)."""
