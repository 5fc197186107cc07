"""The plugin that copies a master's log and tables to its slaves.

See docs/replication.md; docs/internals/store-format.md, Replication stream; docs/internals/algorithms.md, Replication.
"""
