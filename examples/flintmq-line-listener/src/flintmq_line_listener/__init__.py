"""An example plugin of FlintMQ: a second listener, where messages are put and pulled by lines of text."""
