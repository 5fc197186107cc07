"""Public tools for tests of programs that use FlintMQ, and of FlintMQ itself.

:mod:`flintmq.testing.seeded_loop` runs asyncio programs in an order that a seed decides, with virtual time;
:mod:`flintmq.testing.simulated_network` is the network of such a loop.
"""
