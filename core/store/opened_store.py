"""The files of a store as a start finds them: locked, mapped, and not recovered yet."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import msgspec

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.io.clock import Clock
from flintmq.core.io.disk import Disk
from flintmq.core.kernel.ports import (
    ConsumeQueues,
    IndexBuilder,
    MakeConsumeQueues,
    MakeIndexBuilder,
    StoreFolder,
    TagsCodesFactory,
    TransientStorePool,
)
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log.epochs import EpochFile, epochs_path
from flintmq.core.log.mapped_file_queue import MappedFileQueue
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.log.watermarks import Watermarks
from flintmq.core.recovery.plan import FoundStore, LastStop
from flintmq.core.recovery.recovery import Recovery
from flintmq.core.store.log_files import commit_log_folders, log_files
from flintmq.core.store.store_marks import StoreMarks


class OpenedStore(msgspec.Struct, frozen=True, eq=False):
    """The parts of a store whose files are mapped."""

    last_stop: LastStop
    """How the store was left."""
    folder: StoreFolder
    """What consume queues and index were made from."""
    commit_log: CommitLog
    checkpoint: StoreCheckpoint
    epochs: EpochFile
    consume_queues: ConsumeQueues
    index: IndexBuilder
    background: Executor | None
    """The thread for slow file work, in order; None without one."""
    dispatchers: contextlib.ExitStack
    """Closes the dispatchers: after the background work has ended, before the files are closed."""
    held: contextlib.ExitStack
    """Ends the background work, closes the dispatchers, and closes the files."""

    def found(self, config: BrokerConfig, *, indexes: bool) -> FoundStore:
        """Return what a recovery is planned from.

        Args:
            config: how a recovery treats damage.
            indexes: whether a dispatcher feeds the index builder.
        """
        return FoundStore(
            self.last_stop,
            self.commit_log,
            self.consume_queues,
            self.index if indexes else None,
            self.checkpoint.min_timestamp_ms,
            self.epochs.epochs.current.start_offset_bytes,
            check_crc=config.store.check_crc_on_recover,
            skips_damage=config.store.compat == "safe",
        )

    def recovery(self, marks: StoreMarks) -> Recovery:
        """Return what changes the store's files in a recovery."""
        folder = self.folder

        def mark_in_use() -> None:
            if folder.was_stopped:
                marks.mark_abort()

        return Recovery(
            folder.disk,
            folder.root / "flint" / "quarantine",
            self.commit_log,
            self.consume_queues,
            self.index,
            self.checkpoint,
            self.epochs,
            mark_in_use,
        )

    def next_queue_offsets(self) -> dict[tuple[str, int], int]:
        """Return the logical offset of each queue's next message."""
        return {key: queue.max_queue_offset for key, queue in self.consume_queues.queues.items()}


class StoreLoader(msgspec.Struct, frozen=True):
    """Maps the files of a store."""

    config: BrokerConfig
    disk: Disk
    clock: Clock
    marks: StoreMarks
    pool: TransientStorePool | None
    tags_codes: Mapping[str, TagsCodesFactory]
    """By topic, what makes the rule of its tags codes where these are not the hashes of the tags."""
    make_queues: MakeConsumeQueues
    make_index: MakeIndexBuilder
    make_id: Callable[[int], str]
    """Makes the id of an epoch, of so many bytes."""

    def load(
        self,
        watermarks: Watermarks,
        *,
        on_progress: Callable[[], None],
        on_fenced: Callable[[str], None],
    ) -> OpenedStore:
        """Map the store's files, and end each queue where its valid units end. Whatever was opened is closed on failure.

        Args:
            watermarks: the positions of the commit log, set by it.
            on_progress: called when more becomes readable.
            on_fenced: called with the reason when a sync fails.

        Raises:
            OSError: the disk refused something.
            StoreError: files of another size or name.
        """
        disk, root, settings = self.disk, Path(self.config.store.path), self.config.store
        started_clean = self.marks.is_clean()
        same_boot = not started_clean and self.marks.same_boot()
        if not started_clean:
            disk.sync_folder(root)
        with contextlib.ExitStack() as undo:
            files = undo.enter_context(contextlib.ExitStack())
            dispatchers = undo.enter_context(contextlib.ExitStack())
            background = None
            if settings.preallocate or settings.warm:
                background = ThreadPoolExecutor(1, thread_name_prefix="flintmq-allocate")
            queue = log_files(settings, commit_log_folders(settings), disk, self.pool, background)
            files.callback(queue.close)
            if background is not None:
                undo.callback(_end_background, queue, background)
            queue.load(crashed=not started_clean)
            checkpoint = StoreCheckpoint(disk, root / "checkpoint")
            files.callback(checkpoint.close)
            rules = {topic: make(self.config, disk) for topic, make in self.tags_codes.items()}
            commit_log = CommitLog(
                queue, watermarks, checkpoint, self.clock, rules, on_progress=on_progress, on_fenced=on_fenced
            )
            epochs = EpochFile(disk, epochs_path(root), queue.min_offset_bytes, self.make_id)
            folder = StoreFolder(
                root,
                self.config,
                disk,
                self.clock,
                checkpoint,
                started_clean,
                same_boot,
                queue.min_offset_bytes,
                self.marks.forget_boot,
            )
            consume_queues = self.make_queues(folder)
            files.callback(consume_queues.close)
            index = self.make_index(folder)
            files.callback(index.close)
            return OpenedStore(
                LastStop.CLEAN if started_clean else LastStop.KILLED if same_boot else LastStop.CRASHED,
                folder,
                commit_log,
                checkpoint,
                epochs,
                consume_queues,
                index,
                background,
                dispatchers,
                undo.pop_all(),
            )


def _end_background(queue: MappedFileQueue, background: Executor) -> None:
    queue.closing = True
    background.shutdown(wait=True)
