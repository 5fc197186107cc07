"""An example plugin of FlintMQ: an account of what was stored."""
