"""Numbers, booleans and enums that RocketMQ's types cannot hold, in every place of every JSON body and of every header: taken
or refused in so many words, never an accident, and never a configuration file that the Java broker could not load."""

from __future__ import annotations

import asyncio
import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from faults import watched_log
from hypothesis import given, settings
from hypothesis import strategies as st
from seeds import _TEXTS as TEXTS
from seeds import BODIES
from strict_java import check_file
from test_processors import config_of
from wireless import Link

import flintmq
from flintmq.core.errors import StoreError
from flintmq.plugins.delay.plugin import DelayService
from flintmq.plugins.filters.plugin import FilterService
from flintmq.remoting.server.server import RemotingServer
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import encode_command, request
from flintmq.testing.embedded import UnsyncedDisk
from flintmq.tests.support.effort import examples, first
from flintmq.tests.support.request_headers import REQUEST_HEADERS

ODD: list[Any] = [
    2**31,
    -(2**31) - 1,
    2**63,
    -(2**63) - 1,
    2**70,
    -1,
    1.5,
    1e300,
    "7",
    "x",
    "",
    True,
    None,
    [],
    {},
    [7],
]
JSON_BODIES = {code: json.loads(body) for code, body in BODIES.items() if body[:1] == b"{" and b"{{" not in body}
Path_ = tuple[Any, ...]


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Where something stands in a body, the body itself left out."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in items:
        yield (*path, key)
        yield from places(member, (*path, key))


def bent(value: Any, path: Path_, odd: Any) -> Any:
    found = copy.deepcopy(value)
    at = found
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = odd
    return found


def fields_of(code: int) -> dict[str, str]:
    model = REQUEST_HEADERS.get(code)
    return {f.encode_name: TEXTS.get(f.encode_name, "0") for f in msgspec.structs.fields(model)} if model else {}


class Asker:
    """Asks one server, and judges its answers."""

    def __init__(self, server: RemotingServer) -> None:
        self._server = server
        self._link = Link(server)
        self.asked = 0

    async def ask(self, code: int, fields: dict[str, str], body: bytes) -> str | None:
        """The remark of a refusal; None where it was taken, or nobody answers."""
        if not self._link.is_open:
            self._link = Link(self._server)
        self._link.written()
        self._link.feed(encode_command(request(code, fields, body, language="JAVA", version=407)))
        self.asked += 1
        for _ in range(3):
            await asyncio.sleep(0)
        for answer in self._link.written():
            if answer.is_response and answer.code != 0:
                assert answer.remark, (code, body)
                assert "broker.defect" not in answer.remark, (code, fields, body, answer.remark)
                assert "Traceback" not in answer.remark
                return answer.remark
        return None

    def close(self) -> None:
        self._link.close()


def check_files(store: Path) -> int:
    """Every configuration file is one that Java's types can hold; returns how many there are."""
    files = sorted((store / "config").glob("*.json"))
    for file in files:
        check_file(file)
    return len(files)


@pytest.mark.timeout(300)
def test_a_json_body_with_a_value_of_wrong_type_or_range_is_accepted_or_refused_with_a_reason(tmp_path: Path) -> None:
    """Each odd value at each place, alone, at the broker and at the name server; then what was saved is read strictly, and by
    the broker itself."""
    config = config_of(tmp_path / "store", "namesrv.addresses=")
    asked = 0

    async def run() -> None:
        nonlocal asked
        async with flintmq.NameServer(config) as names, flintmq.Broker(config) as broker:
            for server in (broker.server, names.server):
                asker = Asker(server)
                for code, body in JSON_BODIES.items():
                    for path in places(body):
                        for odd in ODD:
                            data = json.dumps(bent(body, path, odd)).encode()
                            fields = fields_of(code) | ({"topicFilterType": "SINGLE_TAG"} if code == 17 else {})
                            await asker.ask(code, fields, data)
                asked += asker.asked
                asker.close()
            broker.state.service(FilterService).table.persist()
            await asyncio.sleep(0)

    with watched_log():
        asyncio.run(run())
    assert asked > 1_500
    assert check_files(tmp_path / "store") >= 2

    async def again() -> None:
        async with flintmq.Broker(config):
            pass

    asyncio.run(again())


@pytest.mark.timeout(300)
def test_a_header_with_a_value_of_wrong_type_or_range_is_accepted_or_refused_with_a_reason(tmp_path: Path) -> None:
    """The same for the fields of headers, whose values are texts: what is saved of them is still Java's."""
    config = config_of(tmp_path / "store", "namesrv.addresses=")
    odd_texts = [str(2**31), str(2**63), str(2**70), "-1", "1.5", "x", "", "true", "null", "[]", " 7", "７"]
    skipped = {RequestCode.UPDATE_BROKER_CONFIG, RequestCode.DELETE_TOPIC_IN_BROKER}

    async def run() -> None:
        async with flintmq.NameServer(config) as names, flintmq.Broker(config) as broker:
            for server in (broker.server, names.server):
                asker = Asker(server)
                for code in sorted(REQUEST_HEADERS):
                    for name in fields_of(code) if code not in skipped else ():
                        for odd in odd_texts:
                            await asker.ask(code, fields_of(code) | {name: odd}, BODIES.get(code, b""))
                asker.close()
            broker.state.offsets.persist()
            broker.state.service(DelayService).persist()
            broker.state.service(FilterService).table.persist()

    with watched_log():
        asyncio.run(run())
    assert check_files(tmp_path / "store") >= 2


@pytest.mark.timeout(300)
@given(st.data())
@settings(max_examples=examples(15), deadline=None)
def test_a_json_body_with_several_random_values_is_accepted_or_refused_with_a_reason(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Chance finds what nobody lists: any JSON at any places of a body, several times over."""
    folder = tmp_path_factory.mktemp("odd")
    config = config_of(folder / "store", "namesrv.addresses=")
    numbers = st.one_of(st.integers(-(2**70), 2**70), st.integers(-(2**32), 2**32), st.floats(allow_nan=False))
    anything = st.recursive(
        st.one_of(st.none(), st.booleans(), numbers, st.sampled_from(["7", "x", "2147483648", "-0"])),
        lambda inner: st.one_of(
            st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab7"), inner, max_size=2)
        ),
        max_leaves=4,
    )
    requests = []
    for _ in range(30):
        code, body = data.draw(st.sampled_from(sorted(JSON_BODIES.items())))
        for path in data.draw(st.lists(st.sampled_from(sorted(places(body), key=str)), min_size=1, max_size=3)):
            try:
                body = bent(body, path, data.draw(anything))
            except (KeyError, IndexError, TypeError):
                continue  # what held the place is gone already
        requests.append((code, json.dumps(body).encode()))

    async def run() -> None:
        async with flintmq.Broker(config) as broker:
            asker = Asker(broker.server)
            for code, body in requests:
                await asker.ask(code, fields_of(code), body)
            asker.close()

    with watched_log():
        asyncio.run(run())
    check_files(folder / "store")


@pytest.mark.parametrize(
    ("field", "odd", "measured"),
    [
        ("retryMaxTimes", 2**31, "2147483648"),
        ("retryMaxTimes", 2**70, str(2**70)),
        ("retryQueueNums", 1.5, "1.5"),
        ("brokerId", 2**63, str(2**63)),
        ("consumeEnable", "x", "'x'"),
        ("consumeEnable", 7, "7"),
        ("whichBrokerWhenConsumeSlowly", [], "[]"),
        ("groupName", {}, "{}"),
    ],
)
def test_the_refusal_of_a_value_of_wrong_type_or_range_names_the_field_and_the_value(
    tmp_path: Path, field: str, odd: Any, measured: str
) -> None:
    """Whoever sent it can mend it; and nothing has changed."""
    config = config_of(tmp_path / "store", "namesrv.addresses=")
    code = int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    body = {**JSON_BODIES[code], "groupName": "Odd", field: odd}

    async def run() -> None:
        async with flintmq.Broker(config) as broker:
            asker = Asker(broker.server)
            remark = await asker.ask(code, {}, json.dumps(body).encode())
            assert remark is not None
            assert "[request.field; measured " in remark
            assert f"{field} is {measured}, and must be" in remark
            assert broker.state.groups.find("Odd") is None
            assert await asker.ask(code, {}, json.dumps({**body, field: JSON_BODIES[code][field]}).encode()) is None
            asker.close()

    asyncio.run(run())


FILES: dict[str, Any] = {
    "topics.json": {
        "dataVersion": {"counter": 3, "timestamp": 1_700_000_000_000},
        "topicConfigTable": {
            "T": {
                "order": False,
                "perm": 6,
                "readQueueNums": 4,
                "topicFilterType": "SINGLE_TAG",
                "topicName": "T",
                "topicSysFlag": 0,
                "writeQueueNums": 4,
            }
        },
    },
    "subscriptionGroup.json": {
        "dataVersion": {"counter": 3, "timestamp": 1_700_000_000_000},
        "subscriptionGroupTable": {
            "G": JSON_BODIES[int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)],
        },
    },
    "consumerOffset.json": {"offsetTable": {"T@G": {"0": 7}}},
    "delayOffset.json": {"offsetTable": {"3": 7}},
}


@pytest.mark.parametrize("name", first(["consumerOffset.json", "delayOffset.json"], FILES))
def test_a_broker_refuses_to_start_if_a_json_config_file_has_a_value_that_rocketmq_cannot_load(
    tmp_path: Path, name: str
) -> None:
    """It names the file, the field and the value; a start that took it would write a file that Java cannot load. Where the
    value fits after all (a number as a text) the broker starts, and what it writes is Java's."""
    folder = tmp_path / "store" / "config"
    folder.mkdir(parents=True)
    config = config_of(tmp_path / "store", "namesrv.addresses=")
    refused = 0

    async def start() -> None:
        async with flintmq.Broker(config, disk=UnsyncedDisk()) as broker:
            broker.state.topics.persist()
            broker.state.groups.persist()
            broker.state.offsets.commit("U", "G", 0, 1)
            broker.state.offsets.persist()

    def why_not() -> str | None:
        try:
            asyncio.run(start())
        except StoreError as error:
            return str(error)
        return None

    for path in places(FILES[name]):
        for odd in (2**31, 2**63, 2**70, 1.5, "7", "x", True, [], {}):
            for old in folder.glob("*.json*"):
                old.unlink()
            shutil.rmtree(folder.parent / "flint", ignore_errors=True)  # where these files are noted
            (folder / name).write_text(json.dumps(bent(FILES[name], path, odd)))
            why = why_not()
            if why is None:
                check_files(tmp_path / "store")
                continue
            refused += 1
            assert str(folder / name) in why
            assert str(path[0]) in why
            assert " is " in why
    assert refused > 10
