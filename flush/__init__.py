"""The built-in flush strategies, which decide when appended records become durable.

========================  ===========================================================  =============
strategy                  state of an acknowledged message                             module
========================  ===========================================================  =============
``group_commit``          synced to disk; one sync serves all waiting sends            group_commit
``flush_real_time``       in the page cache; synced regularly                          real_time
``commit_real_time``      in the transient store pool; committed, then synced, later   real_time
========================  ===========================================================  =============

The strategies use :mod:`.service_thread` (a stoppable thread whose work is a plain method, and counters of syncs) and
:mod:`flintmq.core.waiters` (waiters for durability). See docs/internals/algorithms.md, Flush strategies.
"""
