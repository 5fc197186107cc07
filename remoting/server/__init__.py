"""Sockets, channels, TLS, admission and the processing of requests by code."""
