"""Access control as a plugin: accounts, signatures, addresses, and the requests that change accounts.

What a request code needs is in :mod:`flintmq.remoting.server.access_rules`; how a request is signed is in
:mod:`flintmq.remoting.wire.signature`.
"""
