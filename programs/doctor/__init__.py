"""The doctor: looks at a store that no broker has open, read-only, and explains, compares, copies or rebuilds it.

=============  ==========================================================================
files          the files of a store as they lie there, mapped read-only
walk           the commit log piece by piece: records, blanks, damage, the unused end
verify         every record, unit, slot and configuration file checked
explain        one place, one message, one key; what a start would decide
rebuild        queues and index made again from the log
salvage        everything whole, also behind damage, copied into a new store
compare        what two stores do not have in common
export         messages as JSON lines or Parquet
=============  ==========================================================================
"""
