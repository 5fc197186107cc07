"""Appends, backups, interruptions, cuts and retention in any order: a backup is always the prefix of the log that it says."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from flintmq.core.errors import StoreFormatError
from flintmq.core.io import fastjson
from flintmq.core.io.paths import ends_path
from flintmq.core.record.log_walk import Kind
from flintmq.programs.backup.check import check_backup
from flintmq.programs.backup.manifest import Manifest, read_manifest
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.walk import walk
from flintmq.tests.support.effort import examples

from .conftest import FILE_BYTES, EndedError, EndingWriter, Live, prefix, small_pieces, verified


class BackupMachine(RuleBasedStateMachine):
    """The model is the log's bytes as they were at the last backup that ended."""

    def __init__(self) -> None:
        super().__init__()
        self.patched = pytest.MonkeyPatch()
        small_pieces(self.patched)
        self.folder = Path(tempfile.mkdtemp(prefix="flintmq-backup-"))
        self.live = Live(self.folder)
        self.gone: dict[int, bytes] = {}
        """Files that retention has deleted."""
        self.wanted = b""
        self.manifest: Manifest | None = None
        self.was_cut = False
        self.targets = 0

    def teardown(self) -> None:
        try:
            if self.manifest is not None:
                self.restores_to_the_prefix()
        finally:
            self.live.store.close()
            shutil.rmtree(self.folder)
            self.patched.undo()

    @rule(count=st.integers(1, 12), size=st.integers(1, 1_500), queue_id=st.integers(0, 2), dispatch=st.booleans())
    def put(self, count: int, size: int, queue_id: int, dispatch: bool) -> None:
        marks = self.live.store.watermarks
        dispatch = (
            dispatch or marks.dispatched <= self.live.store.commit_log.min_offset_bytes
        )  # a queue tells the position
        self.live.put(count, size, queue_id=queue_id, dispatch=dispatch)

    @rule(queue_id=st.integers(0, 2), behind=st.integers(0, 5))
    def consume(self, queue_id: int, behind: int) -> None:
        self.live.commit(queue_id=queue_id, behind=behind)

    @rule(prune=st.booleans())
    def back_up(self, prune: bool) -> None:
        try:
            made = self.live.back_up(prune=prune)
        except StoreFormatError as error:
            self._expect_refusal(error, prune)
            return
        self._note(made.manifest, prune)

    def _note(self, manifest: Manifest, prune: bool) -> None:
        log = self.gone | self.live.log()
        now = prefix(log, manifest.begin_offset_bytes, manifest.end_offset_bytes)
        assert len(now) == manifest.end_offset_bytes - manifest.begin_offset_bytes
        before = self.manifest
        if before is not None and before.end_offset_bytes > manifest.begin_offset_bytes:
            skipped = manifest.begin_offset_bytes - before.begin_offset_bytes
            assert now.startswith(self.wanted[skipped:]), "the log has changed below the position of an earlier backup"
        if prune:
            assert manifest.begin_offset_bytes == self.live.store.commit_log.min_offset_bytes
        self.manifest, self.wanted = manifest, now

    def _expect_refusal(self, error: StoreFormatError, prune: bool) -> None:
        """A backup may be refused where the log was cut, or where a part of it is deleted that the backup lacks."""
        assert "was truncated" in str(error) or "has other bytes" in str(error) or "retention has deleted" in str(error)
        if "retention has deleted" in str(error):
            assert self.manifest is not None
            assert not prune
            assert self.live.store.commit_log.min_offset_bytes > self.manifest.end_offset_bytes
        else:
            assert self.was_cut
        assert read_manifest(self.live.target) == self.manifest
        assert check_backup(self.live.target).is_sound
        self.live.target = self.folder / f"another{self.targets}"
        self.targets += 1
        self.manifest, self.wanted, self.was_cut = None, b"", False

    @rule(end_at=st.integers(0, 40))
    def interrupt(self, end_at: int) -> None:
        try:
            made = self.live.back_up(EndingWriter(end_at))
        except StoreFormatError as error:
            self._expect_refusal(error, prune=False)
            return
        except EndedError:
            found = read_manifest(self.live.target)
            if found != self.manifest:
                assert found is not None
                self._note(found, prune=False)
            if found is not None:
                assert check_backup(self.live.target).is_sound
            return
        self._note(made.manifest, prune=False)

    @rule()
    def restart(self) -> None:
        self.live.store.close()
        self.live.open()

    @rule(keep=st.integers(0, 30))
    def power_cut(self, keep: int) -> None:
        """The last records go, and others come in their place."""
        self.live.dispatch()
        self.live.store.close()
        pieces = [piece for piece in walk(StoreFiles(self.live.root)) if piece.kind is Kind.RECORD]
        lost = pieces[len(pieces) - min(len(pieces), keep % 8) :] if pieces else []
        for piece in lost:
            start = piece.start // FILE_BYTES * FILE_BYTES
            with (self.live.root / "commitlog" / f"{start:020d}").open("r+b") as file:
                file.seek(piece.start - start)
                file.write(bytes(piece.end - piece.start))
        self.was_cut = self.was_cut or bool(lost)
        (self.live.root / "abort").touch()
        (self.live.root / "flint" / "boot").unlink(missing_ok=True)
        ends_path(self.live.root).unlink(missing_ok=True)  # it says that the stop was in order
        self.live.open()

    @precondition(lambda self: len(self.live.store.commit_log.queue.files) > 1)
    @rule()
    def expire(self) -> None:
        self.live.dispatch()
        file = self.live.store.commit_log.queue.detach_first()
        self.gone[file.start] = file.path.read_bytes()
        file.region.close()
        file.path.unlink()

    @precondition(lambda self: self.manifest is not None)
    @rule()
    def restores_to_the_prefix(self) -> None:
        manifest = self.manifest
        assert manifest is not None
        assert check_backup(self.live.target).is_sound
        root, _ = self.live.restore()
        log = self.live.log(root)
        assert prefix(log, manifest.begin_offset_bytes, manifest.end_offset_bytes) == self.wanted
        assert not any(prefix(log, manifest.end_offset_bytes, 2**62))
        report = verified(root)
        assert report.is_sound, report.findings
        assert not [found for found in report.findings if "it would miss" in found.advice]
        offsets = root / "config" / "consumerOffset.json"
        if offsets.exists():
            fastjson.loads(offsets.read_bytes())
        shutil.rmtree(root)


TestAnyOrder = BackupMachine.TestCase
# A failure is told as it was found: to shrink one takes many minutes, for each step writes files.
TestAnyOrder.settings = settings(
    max_examples=examples(60), stateful_step_count=25, phases=(Phase.explicit, Phase.generate)
)
