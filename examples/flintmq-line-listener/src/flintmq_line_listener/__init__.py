"""An example plugin of FlintMQ: a second listener, to which clients send requests as lines of text."""
