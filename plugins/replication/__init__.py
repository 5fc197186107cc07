"""Replication as a plugin: the agreement of two logs, the two streams, the links and their sockets, and the promises of slaves.

See docs/replication.md; docs/internals/store-format.md, Replication stream; docs/internals/algorithms.md, Replication.
"""
