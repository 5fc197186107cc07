"""A pool of threads that sends orders, and a listener that bills them."""
