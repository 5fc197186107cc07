"""The Spark feed as a plugin: says how far other programs may read the log, and lands messages in files."""
