"""A load generator of its own, so cheap that it measures the broker and not itself: ``flintmq bench``."""
