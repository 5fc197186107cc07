"""Requests recorded between real clients, brokers and name servers must be understood, and routes answered alike."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.config.sections.models import NamesrvConfig
from flintmq.core.io import fastjson
from flintmq.core.kernel.ports.processor import Request
from flintmq.core.route.kv_config import KVConfigManager
from flintmq.core.route.route_manager import RouteInfoManager
from flintmq.remoting.processors.admin_broker import AdminBrokerProcessor
from flintmq.remoting.processors.admin_clients import AdminClientProcessor
from flintmq.remoting.processors.admin_groups import AdminGroupProcessor
from flintmq.remoting.processors.admin_topics import AdminTopicProcessor
from flintmq.remoting.processors.clients import ClientManageProcessor, ConsumerManageProcessor
from flintmq.remoting.processors.namesrv import NamesrvConfigProcessor, NamesrvRouteProcessor, NamesrvSettings
from flintmq.remoting.server.request import decode_request

SHARED = Path(os.environ.get("FLINTMQ_SHARED") or Path(flintmq.__file__).resolve().parent.parent / "shared")
FRAMES = SHARED / "golden" / "frames" / "frames.jsonl.gz"
ASKS_CLIENTS = {223, 307, 309}
NEEDS_OTHER_STATE = {12, 33, 321}


@pytest.fixture(scope="module")
def frames() -> list[dict[str, Any]]:
    if not FRAMES.exists():
        pytest.skip(f"the golden frames {FRAMES} are not here")
    with gzip.open(FRAMES, "rt") as lines:
        return [json.loads(line) for line in lines]


def request_of(frame: dict[str, Any], channel: Any) -> Request:
    request = decode_request(channel, bytes.fromhex(frame["request_hex"])[4:], keep_ext_fields=False)
    assert isinstance(request, Request)
    return request


def test_recorded_name_server_requests_get_the_response_codes_and_json_keys_of_rocketmq(
    frames: list[dict[str, Any]], bench: Any, ask: Any
) -> None:
    routes, kv = RouteInfoManager(bench.clock), KVConfigManager()
    handlers = NamesrvRouteProcessor(routes, kv).handlers()
    handlers |= NamesrvConfigProcessor(kv, NamesrvSettings(NamesrvConfig())).handlers()
    compared = 0
    for variant in ("json", "rocketmq"):
        of_variant = [f for f in frames if f["variant"] == variant and f["who"].endswith("namesrv")]
        for frame in [f for f in of_variant if f["code"] == 103]:
            assert ask(handlers, request_of(frame, bench.channel)).code == 0
        for frame in of_variant:
            if frame["code"] in handlers and frame["code"] not in (102, 103, 104, 205, 216, 318, 327):
                answer = ask(handlers, request_of(frame, bench.channel))
                real = frame["response"]
                if real["code"] == 0 and frame["code"] in (100, 101, 105, 106, 219):
                    assert answer.code == 0, frame["request"]
                    compared += 1
                if real["code"] == 0 and frame["code"] in (105, 106):
                    told, wanted = fastjson.loads(answer.body), fastjson.loads(real["bodyText"])
                    assert told.keys() == wanted.keys()
                    told_names = {d["brokerName"] for d in told.get("brokerDatas", [])}
                    assert told_names == {d["brokerName"] for d in wanted.get("brokerDatas", [])}
    assert compared > 10


def test_recorded_broker_requests_get_the_response_codes_and_json_keys_of_rocketmq(
    frames: list[dict[str, Any]], bench: Any, ask: Any
) -> None:
    handlers = {}
    for processor in (
        ClientManageProcessor(bench.state.api),
        ConsumerManageProcessor(bench.state.api),
        AdminTopicProcessor(bench.state.api),
        AdminGroupProcessor(bench.state.api),
        AdminClientProcessor(bench.state.api),
        AdminBrokerProcessor(bench.state.api),
    ):
        handlers |= processor.handlers()
    seen = set()
    for frame in frames:
        code = frame["code"]
        if frame["who"] == "client->broker" and code in handlers and code not in ASKS_CLIENTS | NEEDS_OTHER_STATE:
            answer = ask(handlers, request_of(frame, bench.channel))
            real = frame["response"]
            if (
                real is not None
                and real["code"] == 0
                and code in (15, 17, 21, 30, 31, 34, 35, 41, 42, 43, 45, 200, 201, 207)
            ):
                assert answer.code == 0, (frame["request"], answer.remark)
            if real is not None and real["code"] == 0 and real.get("bodyText") and answer.body and code not in (26, 28):
                assert type(fastjson.loads(answer.body)) is type(fastjson.loads(real["bodyText"]))
                assert fastjson.loads(answer.body).keys() == fastjson.loads(real["bodyText"]).keys()
            seen.add(code)
    assert len(seen) > 20
