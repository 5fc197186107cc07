"""``flintmq bench``: a load generator that is cheap enough to measure the broker and not itself."""
