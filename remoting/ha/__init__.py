"""Sockets of replication."""
