"""Flush services: when appended bytes become durable (docs/internals/algorithms.md, Flush strategies).

========================  ===========================================================  =============
strategy                  what an acknowledgement means                                module
========================  ===========================================================  =============
``group_commit``          synced to disk; one sync serves all that wait                group_commit
``flush_real_time``       in the page cache; synced every so often                     real_time
``commit_real_time``      in the transient store pool; committed, then synced, later   real_time
========================  ===========================================================  =============

All of them are built of :mod:`.service_thread` (a stoppable thread whose work is a plain method, and the counters of syncs) and
:mod:`flintmq.core.waiters` (promises of durability).
"""
