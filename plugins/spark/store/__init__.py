"""Reading a store's files: what is there, how far it may be read, which bytes a task reads, and offsets of it."""
