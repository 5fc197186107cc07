"""Backs up a store, whether or not its broker runs, and restores backups (docs/backup.md).

A backup is a folder. ``manifest.json`` lists its files, and is replaced last and in one step. An interrupted backup therefore
leaves the previous backup complete::

    backup/
    ├── manifest.json                    the backup's files, with sizes and digests       manifest.py
    ├── lock                             byte 0 is locked while a backup is made
    ├── log/00000000000000000000 …       the commit log up to a position, and no byte more        log_copy.py
    └── tables/17/config/topics.json …   the tables of the 17th backup into this folder           tables.py

:mod:`.source` finds the position, :mod:`.backup` makes a backup, :mod:`.check` checks it, and :mod:`.restore` restores it.
Consume queues and index are not copied, because they can be rebuilt from the log, and a copy of files that a broker writes
would need repair anyway.
"""
