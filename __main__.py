"""Runs the ``flintmq`` command for ``python -m flintmq``."""

from flintmq.programs.cli.main import main

if __name__ == "__main__":
    main()
