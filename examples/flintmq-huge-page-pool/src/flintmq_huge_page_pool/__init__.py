"""An example plugin of FlintMQ: a transient store pool whose buffers are cut from one map of huge pages."""
