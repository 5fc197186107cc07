"""The server side of the protocol: sockets, channels, TLS, admission, and the processing of requests by code."""
