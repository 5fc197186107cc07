"""Checks, explains, compares, copies and rebuilds stores that no broker has open.

=============  ==========================================================================
files          the files of a store, mapped read-only
walk           walks the commit log in pieces: records, blanks, damage, the unused end
verify         checks every record, unit, slot and configuration file
explain        explains a position, a message or a key, and what a broker would do at its start
rebuild        rebuilds queues and index from the log
salvage        copies all undamaged records, also after damaged parts, to a new store
compare        compares two stores
export         writes messages as JSON lines or Parquet
=============  ==========================================================================
"""
