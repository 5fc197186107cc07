"""An example plugin of FlintMQ: it replaces the built-in services for retention and replication by services that do nothing."""
