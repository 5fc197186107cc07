"""Backups of a store, its broker running or not, and the way back (docs/backup.md).

A backup is a folder. ``manifest.json`` says what belongs to it, and is replaced last and in one step, so that whatever ends a
backup early leaves the one before it whole::

    backup/
    ├── manifest.json                    what belongs to the backup, with sizes and digests       manifest.py
    ├── lock                             byte 0 is locked while a backup is made
    ├── log/00000000000000000000 …       the commit log up to a position, and no byte more        log_copy.py
    └── tables/17/config/topics.json …   the tables of the 17th backup into this folder           tables.py

:mod:`.source` finds the position, :mod:`.backup` makes a backup, :mod:`.check` reads one through, :mod:`.restore` makes a store
of it. Consume queues and index are not copied: the log says what is in them, and a copy of what a broker is writing would have
to be repaired by it anyway.
"""
