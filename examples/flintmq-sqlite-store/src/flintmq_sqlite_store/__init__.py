"""An example plugin of FlintMQ: consume queues and an index that lie in SQLite."""
