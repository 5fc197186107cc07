"""Spark over the wire, whole: a query that is killed, and a broker that takes only signed requests over TLS."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from spark_load import killed_four_times
from spark_missing import need_spark
from spark_round_trip import check_round_trip

import flintmq
from flintmq.programs.cli.child import ServedChild

sys.path.insert(0, str(Path(str(flintmq.__file__)).parent / "tests" / "plugins" / "spark"))

from served import Served

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1_200)]


@pytest.mark.longest
def test_a_killed_spark_streaming_query_processes_each_message_once(tmp_path: Path) -> None:
    """Exactly once, from a FlintMQ broker under load: the query is killed four times in the middle of a batch."""
    need_spark()
    with Served(tmp_path / "served", "store.commit_log_file_bytes=16MiB") as served:
        killed_four_times(served.namesrv, "Stream", tmp_path)


def test_access_keys_and_certificates_reach_the_spark_driver_and_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading, sending and streaming through access control and TLS; without keys, or with half of them, the driver says so."""
    need_spark()
    from flintmq.plugins.spark.errors import SparkPluginError
    from flintmq.plugins.spark.options import ReadOptions
    from flintmq.plugins.spark.wire_transport import WireTransport

    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("makes certificates with openssl, which is not installed")
    pem, key = tmp_path / "server.pem", tmp_path / "server.key"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    subprocess.run([openssl, *words.split(), "-keyout", key, "-out", pem], check=True, capture_output=True)
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text("accounts:\n- {accessKey: spark-key, secretKey: the secret of Spark, admin: true}\n")
    accounts.chmod(0o600)
    settings = [f"listen.tls.certificate={pem}", f"listen.tls.key={key}", "aclEnable=true", f"acl.file={accounts}"]
    arguments = ["--store", str(tmp_path / "store"), "--port", "0", "--namesrv-port", "0"]
    arguments += [word for setting in settings for word in ("--set", setting)]
    keys = {"FLINT_ACCESS_KEY": "spark-key", "FLINT_SECRET_KEY": "the secret of Spark"}
    with ServedChild(arguments) as served:
        check_round_trip(served.namesrv, tmp_path, {**keys, "FLINT_TLS_CA": str(pem)})
        monkeypatch.setenv("FLINT_TLS_CA", str(pem))
        options = ReadOptions.parse({"nameServer": served.namesrv, "subscribe": "SparkOut"})
        with pytest.raises(SparkPluginError, match=r"nameServer .*AclException"):
            WireTransport(options).initial("earliest")
        monkeypatch.setenv("FLINT_ACCESS_KEY", "spark-key")
        with pytest.raises(SparkPluginError, match=r"FLINT_ACCESS_KEY and FLINT_SECRET_KEY .* must both be set"):
            WireTransport(options).initial("earliest")
