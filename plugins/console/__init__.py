"""Starts the console as a child process of a broker (docs/console.md)."""
