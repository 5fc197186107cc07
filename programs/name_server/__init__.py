"""The name server: its assembly and its life."""
