"""Dispatchers: what is made of each stored record. The port is ``CommitLogDispatcher``.

See docs/internals/algorithms.md, Dispatch.
"""
