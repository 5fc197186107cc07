"""Runs several brokers under one name server, each in a separate process (docs/cores.md)."""
