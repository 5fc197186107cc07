"""Access control as a plugin: accounts, signatures, addresses, and the requests that change accounts.

What a request code needs is declared beside its handler (:mod:`flintmq.remoting.processors.needs`); how a request is
signed is in :mod:`flintmq.remoting.wire.signature`.
"""
