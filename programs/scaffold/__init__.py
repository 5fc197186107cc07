"""Writes the projects that plugins begin as."""
