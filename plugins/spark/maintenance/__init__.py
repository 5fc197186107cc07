"""Maintenance of large stores: rebuild, export, compaction and audit (docs/large-stores.md).

Each job divides the commit log into pieces, and runs one task for each piece.

::

    files of the log ─ plan ─► pieces ─► one task each, run by an engine ─► results in order ─► the driver's last step

The same tasks run one after the other (``inline``), in processes of this machine (``process``), or on Spark (``spark``).
Spark's workers need FlintMQ installed and the store at the same path. A piece is a part of one log file. It begins at the start
of the file, or at a record that was found by reading from record to record, from the file's start on. It never begins at bytes
that only look like a record.
"""
