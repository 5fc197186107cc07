"""An example plugin of FlintMQ: a send processor and a pull processor that replace the built-in processors."""
