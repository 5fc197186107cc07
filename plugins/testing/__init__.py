"""A broker for the tests of programs that use one: fixtures of pytest, and a context manager for every other framework."""
