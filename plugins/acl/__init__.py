"""The plugin for access control: accounts, signatures, addresses, and requests that change accounts.

The handler of each request code declares the rights that the request needs (:mod:`flintmq.remoting.processors.needs`).
:mod:`flintmq.remoting.wire.signature` signs requests.
"""
