"""Public tools for tests of programs that use FlintMQ, of plugins, and of FlintMQ itself.

====================  ===============================================================================
``*_kit``             checks of a plugin's implementation of an interface, for authors of plugins
``embedded``          a broker for tests; ``cluster``: several brokers; ``pytest_plugin``: pytest's fixtures
``faults``            scripted faults of syncs, disk, answers, network and process
``clock``             clocks whose time a test sets
``store``             a store without a broker, and messages for it; ``fake_log``: a log without a store
``simulated_disk``    a disk in memory that can lose power: data that is not synced is lost or incomplete
``choices``           random decisions of a simulation; simplifies the decisions of a failed run
``seeded_loop``       an event loop with virtual time; a seed decides the order of callbacks
``simulated_network`` the simulated network that ``seeded_loop`` uses
====================  ===============================================================================
"""
