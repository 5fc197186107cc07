"""The plugin that publishes the positions up to which other programs may read the log, and copies messages to files."""
