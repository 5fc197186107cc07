"""A broker says how its last start went, what it took out of the log, and where settings come from; secrets never leave it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import flintmq
from flintmq import Message
from flintmq.config import load_config
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.record.record import RECORD_MIN_BYTES
from flintmq.programs.broker.broker_report import CHANGED, FILES_MAX, quarantine_of
from flintmq.programs.cluster_view.reports import in_a_line, needs_a_look, start_facts
from flintmq.remoting.client import AdminClient
from flintmq.remoting.wire.broker_report import BrokerReport, StartReport
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request
from flintmq.testing.embedded import SETTINGS

SECRET = "s3cr3t-of-replication"


def configured(store: Path, *more: str, environ: dict[str, str] | None = None) -> flintmq.LoadedConfig:
    return load_config(None, [*SETTINGS, f"store.path={store}", *more], environ or {})


def told(broker: flintmq.Broker, changes: str = "") -> BrokerReport:
    """Return what the broker answers over the wire, once settings have been changed."""

    async def ask() -> BrokerReport:
        async with AdminClient(broker.address) as admin:
            if changes:
                await admin.client.ask(broker.address, request(RequestCode.UPDATE_BROKER_CONFIG, body=changes.encode()))
            answer = await admin.client.ask(broker.address, request(RequestCode.GET_BROKER_REPORT))
            assert BrokerReport.decode(answer.body).start == (await admin.broker_report(broker.address)).start
            return BrokerReport.decode(answer.body)

    return asyncio.run(ask())


def used(store: Path) -> int:
    """Have a store with some messages, left in order; return where its log ends."""
    with flintmq.Broker(configured(store)) as broker:
        broker.put([Message("T", b"x" * 50) for _ in range(20)])
        return broker.state.store.commit_log.max_offset_bytes


def edit(store: Path, position: int, data: bytes) -> None:
    """Overwrite a part of the log, as a crash or a bad disk does."""
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_a_broker_reports_no_damage_when_it_starts_after_a_clean_stop(tmp_path: Path) -> None:
    """But how far the log goes, and that its end was looked at."""
    end = used(tmp_path)
    with flintmq.Broker(configured(tmp_path)) as broker:
        report = told(broker)
    start = report.start
    assert (start.last_stop, start.records, start.end_offset_bytes, start.cut) == ("clean", 20, end, None)
    assert (start.hole_count, report.quarantine.file_count, needs_a_look(report)) == (0, 0, False)
    facts = dict(start_facts(report))
    assert facts["the log ended"] == f"at byte {end:,}, and nothing was cut"
    assert facts["records that were dispatched again"] == "none: the queues had all"


def test_the_start_report_lists_truncations_and_damage_with_their_quarantine_files(tmp_path: Path) -> None:
    """Where the log was cut and why, where damage was taken out, and which files of the quarantine have it."""
    end = used(tmp_path)
    (tmp_path / "abort").touch()
    edit(tmp_path, end, b"torn")
    edit(tmp_path, end // 20 * 5 + 4, b"bad")
    with flintmq.Broker(configured(tmp_path)) as broker:
        report = told(broker)
        assert broker.runtime_info()["commitLogMaxOffset"] == str(end)
    start = report.start
    assert start.last_stop == "killed"
    assert start.cut is not None
    assert (start.cut.start_offset_bytes, start.end_offset_bytes, bool(start.cut.reason)) == (end, end, True)
    (hole,) = start.holes
    assert (hole.start_offset_bytes, hole.end_offset_bytes) == (end // 20 * 5, end // 20 * 6)
    assert end // 20 > RECORD_MIN_BYTES
    kept = {one.name: one for one in report.quarantine.files}
    assert set(kept) == {hole.file, start.cut.file}
    assert kept[hole.file].why.endswith(f"at the last start: {hole.reason}")
    assert start.cut.reason in kept[start.cut.file].why
    assert all(one.size_bytes and one.modified_ms for one in kept.values())
    assert report.quarantine.size_bytes == sum(one.size_bytes for one in kept.values())
    assert needs_a_look(report)
    line = in_a_line(report)
    assert f"log cut at byte {end:,}: {start.cut.reason}; damage taken out in 1 place" in line
    facts = dict(start_facts(report))
    assert facts["damage was taken out of the middle"].startswith("1 place, the first from byte ")
    assert facts["records that were dispatched again"].startswith("from byte ")
    with flintmq.Broker(configured(tmp_path)) as broker:
        later = told(broker)
    assert (later.start.last_stop, later.start.cut, later.quarantine.file_count) == ("clean", None, 2)
    assert {one.why for one in later.quarantine.files} == {one.why.partition("; ")[0] for one in kept.values()}


def test_the_start_report_lists_only_the_newest_quarantine_files(tmp_path: Path) -> None:
    """The newest files, and how many there are in all."""
    for number in range(FILES_MAX + 10):
        (tmp_path / f"{number:020d}-0.cut").write_bytes(b"x" * 10)
    (tmp_path / "notes.txt").write_bytes(b"")
    found = quarantine_of(OS_DISK, tmp_path, StartReport())
    assert (len(found.files), found.file_count, found.size_bytes) == (FILES_MAX, FILES_MAX + 11, 10 * (FILES_MAX + 10))
    assert quarantine_of(OS_DISK, tmp_path / "none", StartReport()).file_count == 0


def test_the_broker_report_lists_each_setting_with_its_origin_and_hides_secrets(tmp_path: Path) -> None:
    """File, environment, command line, default, and what request 25 has changed since."""
    file = tmp_path / "broker.yaml"
    file.write_text(f"broker:\n  name: from-file\nha:\n  secret: {SECRET}\nstore:\n  file_reserved_hours: 7\n")
    overrides = [*SETTINGS, f"store.path={tmp_path / 'store'}"]
    loaded = load_config(file, overrides, {"FLINTMQ_BROKER__CLUSTER": "from-environment"})
    with flintmq.Broker(loaded) as broker:
        before = {one.key: one for one in told(broker).settings}
        report = told(broker, "fileReservedTime=9\n")
    after = {one.key: one for one in report.settings}
    assert [(one.value, one.origin) for one in (before["broker.name"], before["broker.cluster"], before["listen.vip"])] == [
        ("from-file", f"{file}:2"),
        ("from-environment", "environment FLINTMQ_BROKER__CLUSTER"),
        ("false", "command line"),
    ]  # fmt: skip
    assert before["broker.role"].origin == "default"
    assert (before["store.file_reserved_hours"].value, before["store.file_reserved_hours"].origin) == (
        "7h",
        f"{file}:6",
    )
    assert (after["store.file_reserved_hours"].value, after["store.file_reserved_hours"].origin) == ("9h", CHANGED)
    assert after["store.file_reserved_hours"].rocketmq == "fileReservedTime"
    assert {key for key in after if after[key] != before[key]} == {"store.file_reserved_hours"}
    assert after["ha.secret"].value == "******"
    assert SECRET.encode() not in report.encode()
