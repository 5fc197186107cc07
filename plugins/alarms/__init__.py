"""Raises the alarms that concern the broker as a whole, and so belong to no other plugin (docs/alarms.md)."""
