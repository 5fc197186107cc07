"""An example plugin of FlintMQ: it limits the bytes that are sent to each topic whose name begins with a configured prefix."""
