"""Reads the files of a store for Spark: finds the messages, and how far the log may be read; divides the log among tasks;
converts offsets."""
