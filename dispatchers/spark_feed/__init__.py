"""The Spark feed, which publishes the positions up to which other programs may read the log (docs/spark-feed.md)."""
