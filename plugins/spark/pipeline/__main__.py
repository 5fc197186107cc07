"""``python -m flintmq.plugins.spark.pipeline orders.yaml``: what ``flintmq pipeline run orders.yaml`` does.

``spark-submit`` takes this file as the application; the session is then the one it was started for.
"""

from __future__ import annotations

import sys

from flintmq.programs.cli.main import run_command_line

if __name__ == "__main__":
    sys.exit(run_command_line(["pipeline", "run", *sys.argv[1:]]))
