"""Functions that read settings from files, the environment and the command line, check them, and show them."""
