"""An example plugin of FlintMQ: a flush strategy that writes to the disk itself instead of syncing mapped pages."""
