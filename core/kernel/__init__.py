"""The kernel: hook specs, ports, the registry of plugins, and the isolation of plugins that fail."""
