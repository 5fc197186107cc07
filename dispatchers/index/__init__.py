"""The index, which finds messages by topic, key and time in RocketMQ's index files."""
