"""A message runs code of few files: ARCHITECTURE.md lists those of a warm send and of a warm pull.

Each is traced on the thread of the loop of an embedded broker with default settings. Nothing else runs there meanwhile: the
client writes bytes that were made before, and the clock of the broker stands still.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections import defaultdict
from pathlib import Path
from types import FrameType

import pytest

import flintmq
from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.programs.bench.frames import SendFrame
from flintmq.remoting.wire.bodies import ConsumerData, HeartbeatData
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import encode_command, request
from flintmq.remoting.wire.headers_message import PullMessageRequestHeader
from flintmq.testing.clock import VirtualClock

PACKAGE = Path(str(flintmq.__file__)).parent
PAGE = PACKAGE / "ARCHITECTURE.md"
TOPIC, GROUP = "Traced", "readers"
MOST = {"send": 40, "pull": 25}
"""Files that a message may run code of."""
ROW = re.compile(r"^\| `([\w/]+)/` \| (.*) \| (.*) \|$", re.M)


class Files:
    """Notes the files of the package whose functions are called on this thread."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def __enter__(self) -> set[str]:
        sys.setprofile(self._note)
        return self.found

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(PACKAGE) and path.relative_to(PACKAGE).parts[0] not in ("testing", "tests", ".venv"):
                self.found.add(path.relative_to(PACKAGE).with_suffix("").as_posix())


class Client:
    """Speaks the protocol over a socket, with code of the standard library alone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, frame: bytes) -> bytes:
        """Send a frame, return its answer, and let the loop do what the broker has put off."""
        self._writer.write(frame)
        answer = await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(4), "big"))
        for _ in range(10):
            await asyncio.sleep(0)
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


def pull(queue: MessageQueue, queue_offset: int) -> bytes:
    """Return a pull by the subscription that its group has registered."""
    header = PullMessageRequestHeader(
        consumer_group=GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=queue_offset,
        max_msg_nums=32,
        sys_flag=0,
        commit_consumer_offset=0,
        suspend_timeout_ms=0,
        sub_version=0,
    )
    return encode_command(request(RequestCode.PULL_MESSAGE, header))


def heartbeat() -> bytes:
    """Return the registration of a member of the group."""
    subscription = SubscriptionData(topic=TOPIC)
    consumers = [ConsumerData(group_name=GROUP, subscription_data_set=[subscription])]
    data = HeartbeatData(client_id="traced", consumer_data_set=consumers)
    return encode_command(request(RequestCode.HEART_BEAT, body=data.encode()))


async def traced(folder: Path) -> dict[str, set[str]]:
    """Return the files of one send and of one pull, each after others of its kind."""
    settings = [f"store.path={folder}", "listen.port=0", "listen.vip=false", "topics.default_queue_nums=1"]
    loaded = flintmq.load_config(None, settings, {})
    async with flintmq.Broker(loaded, clock=VirtualClock()) as broker:
        await broker.put([flintmq.Message(TOPIC, b"first")])
        queue = MessageQueue(broker.config.broker.name, 0, TOPIC)
        send = SendFrame(0, queue, b"." * 100, 1)
        sends = [bytes(send.next(b"1700000000000", number)) for number in range(4)]
        pulls = [pull(queue, number) for number in range(4)]
        client = Client(*await asyncio.open_connection(*broker.address.split(":")))
        found: dict[str, set[str]] = {}
        await client.ask(heartbeat())
        for kind, (*warm, last) in (("send", sends), ("pull", pulls)):
            for frame in warm:
                await client.ask(frame)
            with Files() as found[kind]:
                answer = await client.ask(last)
            assert b'"code":0' in answer, answer
        client.close()
    return found


def listed() -> dict[str, set[str]]:
    """Return the files that the page lists."""
    found: dict[str, set[str]] = {"send": set(), "pull": set()}
    for folder, sends, pulls in ROW.findall(PAGE.read_text("utf-8")):
        for kind, cell in (("send", sends), ("pull", pulls)):
            found[kind] |= {f"{folder}/{name}" for name in re.findall(r"`(\w+)`", cell)}
    return found


def rows(found: dict[str, set[str]]) -> str:
    """Return the rows of the page that would list these files."""
    by_folder: dict[str, dict[str, list[str]]] = defaultdict(lambda: {"send": [], "pull": []})
    for kind, paths in found.items():
        for path in sorted(paths):
            folder, _, name = path.rpartition("/")
            by_folder[folder][kind].append(f"`{name}`")
    return "\n".join(
        f"| `{folder}/` | {' '.join(kinds['send'])} | {' '.join(kinds['pull'])} |"
        for folder, kinds in sorted(by_folder.items())
    )


@pytest.mark.skipif(not PAGE.exists(), reason="the page is part of the repository, not of the wheel")
def test_handling_a_message_runs_only_code_of_the_files_listed_in_architecture_md(tmp_path: Path) -> None:
    """Whoever reads how a message flows reads these files, and no more of them than the bound."""
    found = asyncio.run(traced(tmp_path))
    assert found == listed(), f"the rows of ARCHITECTURE.md are to be\n{rows(found)}"
    assert {kind: len(paths) for kind, paths in found.items() if len(paths) > MOST[kind]} == {}


def test_the_file_tracer_records_only_calls_inside_its_with_statement() -> None:
    """A tracer that notes nothing would hold every bound."""
    message, load = flintmq.Message, flintmq.load_config
    with Files() as found:
        message("T", b"")
    load(None, [], {})
    assert found == {"remoting/client/message"}
