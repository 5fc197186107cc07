"""Parts of tools/soak_client.py, a soak test of the client library: the broker with its faults, the clients' calls, and the
results."""
