"""The kernel: hook specifications, ports (the interfaces that plugins implement), the registry of plugins, and the isolation of
plugins that fail."""
