"""An example plugin of FlintMQ: a retention and a replication that do nothing replace the built-in retention and
replication."""
