"""The consume queues, which list the places of each queue's messages in the commit log."""
