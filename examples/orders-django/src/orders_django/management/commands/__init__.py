"""The commands of ``python -m orders_django``."""
