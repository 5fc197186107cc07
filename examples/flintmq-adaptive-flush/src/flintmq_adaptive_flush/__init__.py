"""An example plugin of FlintMQ: group commit that waits a little for company."""
