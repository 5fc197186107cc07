"""The consume queues, which list the physical offsets of each queue's messages in the commit log."""
