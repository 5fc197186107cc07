"""``python -m flintmq`` is the ``flintmq`` command."""

from flintmq.programs.cli.main import main

if __name__ == "__main__":
    main()
