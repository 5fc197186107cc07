"""Where ``flintmq`` and ``python -m flintmq`` begin."""

from __future__ import annotations

import sys


def main() -> None:
    """Exits the process."""
    from flintmq.plugins.cli import late_imports

    late_imports.begin()
    from flintmq.plugins.cli.plain_words import plain_call

    call = plain_call(sys.argv[1:])
    if call is None:
        from flintmq.plugins.cli.main import run_command_line

        sys.exit(run_command_line())
    from flintmq.plugins.cli.exits import finished

    sys.exit(finished(call))
