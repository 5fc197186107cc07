"""Replication without sockets: bytes and positions in, bytes and positions out (reference: store-format 9, algorithms 9)."""
