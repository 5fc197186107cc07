"""The name server: its assembly, its start and its stop."""
