"""Decodes and encodes frames, headers and bodies. The modules of this package use neither sockets nor a broker."""
