"""An example plugin of FlintMQ: consume queues and an index in SQLite databases."""
