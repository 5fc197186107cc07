"""Dispatchers, which build the consume queues, the index and the bit maps from stored records. Their interface is
``CommitLogDispatcher``.

See docs/internals/algorithms.md, Dispatch.
"""
