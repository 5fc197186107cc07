"""The plugin for access control: accounts, signatures, addresses, and requests that change accounts.

The handler of each request code declares the rights that it needs (:mod:`flintmq.remoting.processors.needs`).
:mod:`flintmq.remoting.wire.signature` signs requests.
"""
