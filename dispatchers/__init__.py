"""Dispatchers, which build queues, index and bit maps from stored records. Their interface is ``CommitLogDispatcher``.

See docs/internals/algorithms.md, Dispatch.
"""
