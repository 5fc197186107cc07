"""The console's plugin: starts the console beside a broker, as a process of its own (docs/console.md)."""
