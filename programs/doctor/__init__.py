"""Checks, explains, compares, copies and rebuilds stores that no broker has open.

* :mod:`.files`: the files of a store, mapped read-only.
* :mod:`.walk` reads the commit log part by part: records, blank records, damaged parts, and the unused end.
* :mod:`.verify` checks every record, unit, slot and configuration file.
* :mod:`.explain` explains a position, a message or a key, and what a broker would do at its start.
* :mod:`.rebuild` rebuilds queues and index from the log.
* :mod:`.salvage` copies all undamaged records, also after damaged parts, to a new store.
* :mod:`.compare` compares two stores.
* :mod:`.export` writes messages as JSON lines or Parquet.
"""
