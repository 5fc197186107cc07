"""Reads a store's files: finds its messages and how far they may be read, divides them among tasks, and converts offsets."""
