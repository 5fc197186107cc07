"""An example plugin of FlintMQ: watches connections and requests."""
