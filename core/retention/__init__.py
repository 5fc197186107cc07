"""The rules by which files of a store are deleted."""
