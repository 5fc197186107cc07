"""A service that takes orders over HTTP and bills them in the background."""
