"""An example plugin of FlintMQ: a retention and a replication that do nothing, in place of the built-in ones."""
