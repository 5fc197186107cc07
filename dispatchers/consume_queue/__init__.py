"""The consume queues: per topic and queue, where its messages lie in the commit log."""
