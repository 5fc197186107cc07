"""The kernel: hook specs, ports, the registry of plugins, and what isolates one that fails."""
