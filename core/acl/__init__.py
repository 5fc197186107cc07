"""Access control: who sends a request (accounts, signatures, addresses), and what a request needs (rules, permissions).

The table of request codes is in :mod:`flintmq.remoting.server.access_rules`, because it knows headers and bodies.
"""
