"""The broker: its assembly, its life, and the parts that only it has."""
