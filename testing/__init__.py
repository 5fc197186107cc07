"""Public tools for tests of programs that use FlintMQ, of plugins, and of FlintMQ itself.

====================  ===============================================================================
``*_kit``             checks for implementations of a port, for authors of plugins
``embedded``          a broker for tests; ``cluster``: several brokers; ``pytest_plugin``: the fixtures
``faults``            scripted faults of syncs, disk, answers, network and process
``clock``             clocks that tests move
``store``             a store without a broker, and messages for it; ``fake_log`` is a log without a store
``simulated_disk``    a disk in memory that loses what was not synced, and tears a half-written write
``choices``           choices that a seed decides, and a shorter list of them that still fails
``seeded_loop``       an event loop whose order and time a seed decides
``simulated_network`` the network of such a loop
====================  ===============================================================================
"""
