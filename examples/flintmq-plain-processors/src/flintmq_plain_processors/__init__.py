"""An example plugin of FlintMQ: a send and a pull processor in place of the built-in ones."""
