"""Parts of tools/soak_client.py: the broker and its faults, the calls, and their results."""
