"""An example plugin of FlintMQ: a dispatcher that keeps an account of the stored messages."""
