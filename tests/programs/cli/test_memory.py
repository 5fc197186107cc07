"""A broker at rest must not hold in memory what it does not use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flintmq.core.kernel.finder import may_have_entry_points

UNWANTED = {
    # Extension modules and libraries that a broker without access control, filters or a configuration file does not use.
    "difflib",
    "email",
    "hashlib",
    "hmac",
    "http",
    "multiprocessing",
    "numpy",
    "shutil",
    "stringprep",
    "rich",
    "yaml",
    "zipfile",
    # Ours.
    "flintmq.plugins.acl.account_store",
    "flintmq.plugins.filters.sql92",
    "flintmq.plugins.replication.streams",
    "flintmq.dispatchers.spark_feed.feed_file",
    "flintmq.flush.group_commit",
    "flintmq.flush.transient_store_pool",
    "flintmq.programs.cli.plugin_command",
    "flintmq.programs.broker.in_process",
    "flintmq.plugins.replication.master",
    "flintmq.remoting.client.consumer",
    "flintmq.remoting.server.tls",
    "flintmq.remoting.wire.signature",
}


@pytest.mark.timeout(60)
def test_a_newly_started_broker_has_imported_no_modules_of_unused_features(tmp_path: Path) -> None:
    """Each of these costs from 0.1 to 13 MiB, and milliseconds of every start."""
    program = """
import os, signal, sys
before = set(sys.modules)  # of an interpreter that finds packages in its own ways

class Out:
    def write(self, text):
        if text.startswith("READY"):
            sys.__stdout__.write(" ".join(set(sys.modules) - before))
            os.kill(os.getpid(), signal.SIGTERM)
    def flush(self):
        sys.__stdout__.flush()

sys.stdout = Out()
from flintmq.programs.cli.main import main
sys.argv = ["flintmq", "run", "--store", sys.argv[1], "--port", "0", "--namesrv-port", "0", "--log-level", "error"]
main()
"""
    command = [sys.executable, "-c", program, str(tmp_path / "store")]
    # Settings of the tests in the environment are not the broker's: a name that it does not know has it look for near ones.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLINT")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "flintmq.remoting.processors.send_message" in loaded
    unwanted = UNWANTED if may_have_entry_points() else UNWANTED | {"importlib_metadata"}
    assert sorted(loaded & unwanted) == []
