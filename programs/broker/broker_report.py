"""Answers the request GET_BROKER_REPORT with the last start, the content of the quarantine, and the origin of each setting.

The quarantine is the folder with the parts that were removed from the commit log, such as damaged records.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from flintmq.config.loading.schema import KEYS
from flintmq.config.loading.show import rows
from flintmq.core.errors import StoreError
from flintmq.core.kernel.ports.access import ADMIN
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, handles
from flintmq.remoting.wire.broker_report import (
    BrokerReport,
    Quarantine,
    QuarantinedFile,
    RemovedPart,
    ReportedSetting,
    StartReport,
)
from flintmq.remoting.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flintmq.config import BrokerConfig, LoadedConfig
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.broker.log_view import StoreHealth
    from flintmq.core.io.disk import Disk

FILES_MAX: Final = 50
"""Maximum number of quarantined files, and of removed parts of the commit log, in one report."""
VALUE_MAX_CHARS: Final = 1_000
CHANGED: Final = "changed at run time"
_WHY: Final = {
    ".cut": "behind the end of the log when a start, or a new master, ended it there",
    ".lost": "damage in the middle of the log, which goes on behind it",
}


class BrokerReportProcessor(DeclaredProcessor):
    """Reports the last start, the quarantine and the settings. For the loop thread only.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._settings: tuple[BrokerConfig, list[ReportedSetting]] | None = None
        """(configuration, settings with their origins) of the last broker report; None before the first report. The settings
        are kept, because finding their origins takes two milliseconds."""

    @handles(RequestCode.GET_BROKER_REPORT, needs=ADMIN)
    def report(self, _request: Request) -> Response:
        """Return a report about this broker, which has three parts. The first is what the last start of the broker found in the
        store and did. The second is a list of the parts that were removed from the commit log, such as damaged records; the
        broker keeps them in a folder, the quarantine. The third is the value and the origin of each setting. Secrets are
        hidden."""
        api, health = self._api, self._api.log.health
        start = start_report(health)
        config = api.settings.current
        if self._settings is None or self._settings[0] is not config:
            self._settings = config, settings_of(api.settings.start, config)
        body = BrokerReport(start, quarantine_of(api.folder.disk, health.quarantine, start), self._settings[1])
        return Response(body=body.encode())


def start_report(health: StoreHealth) -> StartReport:
    """Return a report of a store's last start: what the start found and did."""
    plan, walked = health.recovery_plan, health.recovered
    report = StartReport(
        last_stop=plan.last_stop.value,
        walked_from_offset_bytes=plan.walked_from_offset_bytes,
        because=plan.because,
        rewritten_from_offset_bytes=plan.rewritten_from_offset_bytes,
        dispatched_from_offset_bytes=plan.dispatched_from_offset_bytes,
        indexed_from_offset_bytes=plan.indexed_from_offset_bytes,
        recovery_ms=round(health.recovery_s * 1000),
        catch_up_ms=round(health.catch_up_s * 1000),
    )
    if walked is None:
        return report
    report.records, report.end_offset_bytes = walked.records, walked.end_offset_bytes
    if walked.cut is not None:
        report.cut = RemovedPart(walked.cut.offset_bytes, -1, walked.cut.reason, _name(walked.cut.quarantine))
    report.holes = [
        RemovedPart(one.start_offset_bytes, one.end_offset_bytes, one.reason, _name(one.quarantine))
        for one in walked.holes[:FILES_MAX]
    ]
    report.hole_count = len(walked.holes)
    return report


def _name(path: Path | None) -> str:
    return path.name if path is not None else ""


def quarantine_of(disk: Disk, folder: Path, start: StartReport) -> Quarantine:
    """Return the content of a store's quarantine, newest files first.

    Args:
        disk: the disk with the quarantine.
        folder: the quarantine's folder, which exists only after something was removed from the log.
        start: the report of the last start, which gives the reasons for the files that this start moved to the quarantine.
    """
    removed: Iterable[RemovedPart] = (*start.holes, *([start.cut] if start.cut is not None else ()))
    reasons = {one.file: one.reason for one in removed if one.file}
    found = []
    for path in disk.list_files(folder) if disk.exists(folder) else ():
        try:
            made = QuarantinedFile(path.name, disk.size(path), disk.modified_ms(path))
        except (OSError, StoreError):
            # A file is skipped if the operator has removed the file from the quarantine after the folder was listed.
            continue
        why, reason = _WHY.get(path.suffix, ""), reasons.get(path.name)
        made.why = f"{why}; at the last start: {reason}" if reason else why
        found.append(made)
    found.sort(key=lambda one: (-one.modified_ms, one.name))
    return Quarantine(found[:FILES_MAX], len(found), sum(one.size_bytes for one in found))


def settings_of(loaded: LoadedConfig, now: BrokerConfig) -> list[ReportedSetting]:
    """Return the current settings in the form of ``flintmq config show``.

    Args:
        loaded: the configuration at the start.
        now: the current configuration, which UPDATE_BROKER_CONFIG (request 25) may have changed since the start.
    """
    found = []
    for row in rows(attrs.evolve(loaded, config=now)):
        key = KEYS.get(row.key)
        is_changed = key is not None and key.value_of(now) != key.value_of(loaded.config)
        value = row.value if len(row.value) <= VALUE_MAX_CHARS else f"{row.value[:VALUE_MAX_CHARS]}..."
        found.append(ReportedSetting(row.key, value, CHANGED if is_changed else row.origin, row.rocketmq))
    return found
