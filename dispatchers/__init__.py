"""Dispatchers: what is made of each stored record (reference: algorithms 5). The port is ``CommitLogDispatcher``."""
