"""A broker whose services for retention and replication do nothing stores and serves messages like any other broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from flintmq_keep_all.plugin import KeepAll

import flintmq
from flintmq import ConfigError, LoadedConfig
from flintmq.testing.clock import VirtualClock
from flintmq.testing.service_kit import check_service


def loaded(folder: Path, more: str = "") -> LoadedConfig:
    text = "listen: {port: 0, vip: false}\ntopics: {default_queue_nums: 1}\n"
    text += f"store: {{path: {folder / 'store'}, commit_log_file_bytes: 64KiB, max_message_bytes: 32KiB, "
    text += f"file_reserved_hours: 1, delete_when: '{';'.join(f'{hour:02}' for hour in range(24))}'}}\n"
    # The built-in retention deletes only files that are synced to disk.
    # The strategy group_commit syncs at once, so without the plugin, the built-in retention would delete the test's files.
    text += "flush: {strategy: group_commit}\n"
    (folder / "broker.yaml").write_text(text + more, encoding="utf-8")
    return flintmq.load_config(folder / "broker.yaml", [], {})


def test_the_keep_all_service_passes_the_service_kit() -> None:
    """The service that replaces the built-in services starts no periodic work on the broker's timers."""
    check_service(lambda _timers: KeepAll())


@pytest.mark.parametrize(("more", "is_kept"), [("", True), ("disabled_plugins: [keep_all]\n", False)])
def test_the_keep_all_plugin_deletes_no_log_file(tmp_path: Path, more: str, *, is_kept: bool) -> None:
    """If the plugin is disabled, the built-in retention deletes the oldest file after an hour."""
    clock = VirtualClock()
    with flintmq.Broker(loaded(tmp_path, more), clock=clock) as broker:
        for number in range(8):
            broker.put([flintmq.Message("T", b"%d" % number * 30_000)])
        clock.advance("2h")
        found = broker.pull("T", 0, 0, group="G")
        assert (found.status is flintmq.PullStatus.FOUND) is is_kept


def test_the_keep_all_plugin_needs_no_replication_secret(tmp_path: Path) -> None:
    """The plugin's replication needs no secret, because it accepts no slaves. The built-in replication does not start without a
    secret."""
    with flintmq.Broker(loaded(tmp_path, "ha: {enable: true}\n")) as broker:
        (put,) = broker.put([flintmq.Message("T", b"kept")])
        assert put.queue_offset == 0
    off = loaded(tmp_path, "ha: {enable: true}\ndisabled_plugins: [keep_all]\n")
    with pytest.raises(ConfigError, match="replication needs a secret"), flintmq.Broker(off):
        pass
