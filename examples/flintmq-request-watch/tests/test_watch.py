"""The plugin counts requests, refuses requests with configured codes, and returns the counts. Clients use a real socket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from flintmq_request_watch.command import print_counts
from flintmq_request_watch.watch import COUNTS, Watch

import flintmq
from flintmq.client import RemotingClient
from flintmq.protocol import declared_by, request
from flintmq.testing.processor_kit import Sample, check_request_processor


def test_the_counts_processor_passes_the_processor_kit() -> None:
    """The plugin's request processor passes FlintMQ's test kit, which checks that a server can send the processor's answers."""
    (answer,) = check_request_processor(lambda: Watch(()), declared_by(Watch), [Sample(COUNTS)])
    assert json.loads(answer.body) == {"open": 0, "errors": 0, "requests": {}, "answers": {}, "unknown": {}}


def test_a_name_server_answers_the_counts_request(tmp_path: Path) -> None:
    """The plugin registers its request processor at a broker and at a name server."""
    settings = [f"store.path={tmp_path / 'store'}", "nameserver.port=0"]

    async def counts() -> bytes:
        loaded = flintmq.load_config(None, settings, {})
        # The settings do not list the plugin, because a name server finds an installed plugin by its entry point.
        async with (
            flintmq.NameServer(loaded) as server,
            RemotingClient() as client,
        ):
            return (await client.invoke(server.address, request(COUNTS, {}), 5_000)).body

    assert json.loads(asyncio.run(counts()))["requests"] == {str(COUNTS): 1}


def test_requests_of_a_broker_are_counted_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Requests, answers and connections are counted. The refusal of a request names the configuration key that lists the
    refused codes."""
    text = "listen: {port: 0, vip: false}\nrequest_watch: {refused_codes: [28]}\n"
    (tmp_path / "broker.yaml").write_text(text + f"store: {{path: {tmp_path / 'store'}}}\n", encoding="utf-8")
    loaded = flintmq.load_config(tmp_path / "broker.yaml", [], {})

    async def live() -> None:
        # The configuration file does not list the plugin, because the broker finds an installed plugin by its entry point.
        async with flintmq.Broker(loaded) as broker:
            client = RemotingClient()
            refused = await client.invoke(broker.address, request(28, {}), 5_000)
            assert "request_watch.refused_codes" in (refused.remark or "")
            unknown = await client.invoke(broker.address, request(COUNTS + 1, {}), 5_000)
            assert "not supported" in (unknown.remark or "")
            counts = json.loads((await client.invoke(broker.address, request(COUNTS, {}), 5_000)).body)
            assert counts["open"] == 1
            assert counts["requests"] == {"28": 1, str(COUNTS): 1, str(COUNTS + 1): 1}
            assert counts["answers"] == {"16": 1, "3": 1}
            assert counts["unknown"] == {str(COUNTS + 1): 1}
            await client.close()
            await asyncio.to_thread(print_counts, broker.address)

    asyncio.run(live())
    assert capsys.readouterr().out.splitlines() == ["28 1", f"{COUNTS} 2", f"{COUNTS + 1} 1"]
