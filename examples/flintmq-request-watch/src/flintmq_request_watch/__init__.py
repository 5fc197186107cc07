"""An example plugin of FlintMQ: a watch that counts connections and requests, and refuses requests with configured codes."""
