"""Reads a store's files: which messages exist, how far they may be read, the bytes for each task, and offsets in the store."""
