"""Watches what no other feature knows by itself, and says what is wrong (docs/alarms.md)."""
