"""An example plugin of FlintMQ: group commit that waits a little so that more messages share a sync."""
