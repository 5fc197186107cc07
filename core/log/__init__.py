"""The commit log: mapped files, append and read, watermarks, checkpoint, epochs and the lock of a store."""
