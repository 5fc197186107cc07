"""Maintenance of large stores: rebuild, export, compaction and audit, piece by piece (docs/large-stores.md).

::

    files of the log ─ plan ─► pieces ─► one task each, run by an engine ─► results in order ─► the driver's last word

The same tasks run one after the other (``inline``), in processes of this machine (``process``), or on Spark (``spark``), whose
workers need FlintMQ installed and the store at the same path. A piece begins where a record is known to begin: at the start of
a file, or where a walk from there came by; never at something that only looks like a record.
"""
