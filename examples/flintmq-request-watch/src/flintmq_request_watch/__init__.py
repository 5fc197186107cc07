"""An example plugin of FlintMQ: it counts connections and requests, and refuses requests with configured request codes."""
