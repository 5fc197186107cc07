"""The page of RocketMQ's classes names modules and names that exist, and no class that articles explain is missing."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "rocketmq-classes.md"
LINK: Final = re.compile(r"\[([\w/]+\.py)\]\(\.\./([\w/]+\.py)\)((?:,? `[\w.]+`)*)")
EXPLAINED: Final = """
AllocateMappedFileService BrokerController BrokerFastFailure BrokerOuterAPI CleanCommitLogService CommitLog
CommitLogDispatcher CommitLogDispatcherBuildConsumeQueue CommitLogDispatcherBuildIndex CommitRealTimeService
ConsumeQueue ConsumerManager ConsumerOffsetManager DefaultMessageStore FlushCommitLogService
FlushConsumeQueueService FlushRealTimeService GroupCommitService GroupTransferService HAClient HAConnection
HAService IndexFile IndexService MappedFile MappedFileQueue MQClientInstance MQFaultStrategy NamesrvController
NettyRemotingClient NettyRemotingServer NettyRequestProcessor ProcessQueue PullMessageProcessor
PullMessageService PullRequestHoldService RebalanceImpl RemotingCommand ReputMessageService RouteInfoManager
ScheduleMessageService SendMessageProcessor StoreCheckpoint TopicConfigManager TransactionalMessageServiceImpl
TransientStorePool abort checkpoint BLANK_MAGIC_CODE CQ_STORE_UNIT_SIZE OS_PAGE_SIZE fileReservedTime
"""
"""Names that articles on RocketMQ's source explain."""


def _rows() -> Iterator[list[str]]:
    """Yield the cells of each row of the page's tables, without heads."""
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `"):
            yield cells


def _named() -> list[tuple[str, str]]:
    """Return each module that the page links to with each name beside it; the empty name without one."""
    found = []
    for row in _rows():
        for link in LINK.finditer(row[1]):
            assert link[1] == link[2], f"{link[1]} links to {link[2]}"
            found += [(link[1], name) for name in re.findall(r"`([\w.]+)`", link[3]) or [""]]
    return found


@pytest.mark.parametrize(("path", "name"), _named())
def test_names_on_the_rocketmq_classes_page_exist_in_their_modules(path: str, name: str) -> None:
    """A reader of RocketMQ's source follows the page instead of a search; a moved class would lead nowhere."""
    module = importlib.import_module("flintmq." + path.removesuffix(".py").replace("/", "."))
    if name:
        reduce(getattr, name.split("."), module)


def test_each_row_of_the_rocketmq_classes_page_names_a_module_or_explains_why_no_module_exists() -> None:
    """A row without a module says that there is none, or names a setting."""
    for row in _rows():
        assert len(row) == 3, row
        assert LINK.search(row[1]) or row[1] == "none" or re.match(r"`[a-z_]+\.|see \[", row[1]), row
        assert len(row[2].split()) >= 2, row


def test_the_documentation_lists_the_best_known_rocketmq_classes() -> None:
    """The first search of a reader is for one of these names."""
    known = {
        name for row in _rows() for quoted in re.findall(r"`([^`]+)`", row[0]) for name in re.split(r"[ /]+", quoted)
    }
    assert sorted(set(EXPLAINED.split()) - known) == []


def test_the_readme_and_the_index_link_to_the_classes_page() -> None:
    """A reader of RocketMQ's source must find the page from the first pages."""
    assert "docs/rocketmq-classes.md" in (ROOT / "README.md").read_text("utf-8")
