"""Several brokers under one name server, each in a process of its own (docs/cores.md)."""
