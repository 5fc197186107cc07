"""Runs ``python -m flintmq.plugins.spark.pipeline orders.yaml`` like ``flintmq pipeline run orders.yaml``.

``spark-submit`` takes this file as the application. The pipeline then uses the session that ``spark-submit`` started.
"""

from __future__ import annotations

import sys

from flintmq.programs.cli.main import run_command_line

if __name__ == "__main__":
    sys.exit(run_command_line(["pipeline", "run", *sys.argv[1:]]))
