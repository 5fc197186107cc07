"""The index: messages by topic, key and time, in RocketMQ's index files."""
