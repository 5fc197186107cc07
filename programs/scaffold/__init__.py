"""Writes the projects of new plugins."""
