"""Parts of tools/soak_client.py: the broker and its troubles, the calls, and what came of them."""
