"""Replication as a plugin: how two logs agree, the two streams, the connections, and the waits of a sync master for slaves.

See docs/replication.md; docs/internals/store-format.md, Replication stream; docs/internals/algorithms.md, Replication.
"""
