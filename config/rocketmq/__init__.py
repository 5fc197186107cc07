"""Support for RocketMQ's configuration: its names, its properties files, and their translation to YAML."""
