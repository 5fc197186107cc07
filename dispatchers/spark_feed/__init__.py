"""The Spark feed: how far other programs may read the log (docs/spark-feed.md)."""
