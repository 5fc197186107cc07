"""When files of a store are deleted, and how."""
