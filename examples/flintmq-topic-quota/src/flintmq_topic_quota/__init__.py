"""An example plugin of FlintMQ: a quota of bytes for the topics of a prefix."""
