"""Maintenance of large stores: rebuild, export, compaction and audit, in pieces of the log (docs/large-stores.md).

::

    files of the log ─ plan ─► pieces ─► one task each, run by an engine ─► results in order ─► the driver's last step

The same tasks run one after the other (``inline``), in processes of this machine (``process``), or on Spark (``spark``).
Spark's workers need FlintMQ installed and the store at the same path. A piece begins at the start of a file, or at a record
that a walk from the file's start found. It never begins at bytes that only look like a record.
"""
