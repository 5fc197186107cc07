"""The broker: its assembly, its start and stop, and the parts that only a broker has."""
