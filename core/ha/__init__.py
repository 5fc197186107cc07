"""Replication without sockets: bytes and positions in, bytes and positions out.

See docs/internals/store-format.md, Replication stream; docs/internals/algorithms.md, Replication.
"""
