"""``bench``: its frames are what a client sends, its figures are there, and comparing works."""

from __future__ import annotations

import os

import pytest

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.record.batch import decode_batch
from flintmq.core.record.properties import UNIQ_KEY, string_to_properties
from flintmq.programs.bench.figures import percentile_ms, ratios
from flintmq.programs.bench.frames import OPAQUE_BASE, PullFrame, SendFrame, code_of, field_of, slot_of
from flintmq.programs.bench.run import BenchResult
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import decode_command
from flintmq.remoting.wire.header_codec import decode_header
from flintmq.remoting.wire.headers_message import PullMessageRequestHeader, SendMessageRequestHeaderV2

from .conftest import RunCommand

QUEUE = MessageQueue("broker-a", 3, "Bench")


def test_a_reused_request_gets_a_new_timestamp_and_a_new_message_id_for_each_send() -> None:
    """Patching in place must leave a frame that decodes, with the new time and an id of its own each time."""
    frame = SendFrame(7, QUEUE, b"body", 1)
    seen = set()
    for counter in (0, 1, 2**32 + 5):
        command = decode_command(bytes(frame.next(b"1700000000123", counter))[4:])
        header = decode_header(SendMessageRequestHeaderV2, command.ext_fields)
        assert (command.code, command.opaque, command.body) == (310, OPAQUE_BASE + 7, b"body")
        assert (header.queue_id, header.born_timestamp_ms, header.topic) == (3, 1_700_000_000_123, "Bench")
        seen.add(string_to_properties(header.properties or "")[UNIQ_KEY])
    assert len(seen) == 3


def test_each_message_in_a_reused_batch_request_frame_has_a_different_message_id() -> None:
    """Every message of a batch has an id of its own."""
    command = decode_command(bytes(SendFrame(0, QUEUE, b"body", 5).next(b"1700000000123", 10))[4:])
    assert command.code == RequestCode.SEND_BATCH_MESSAGE
    items = decode_batch(command.body)
    keys = {string_to_properties(item.properties_bytes.decode())[UNIQ_KEY] for item in items}
    assert len(items) == len(keys) == 5


@pytest.mark.parametrize("queue_offset", [0, 7, 12_345_678_901])
def test_the_benchmark_builds_valid_pull_requests_for_small_and_large_queue_offsets(queue_offset: int) -> None:
    """Offsets of every width make whole frames."""
    frame = PullFrame(1, QUEUE, 32).next(queue_offset)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    command = decode_command(frame[4:])
    header = decode_header(PullMessageRequestHeader, command.ext_fields)
    assert (header.queue_offset, header.max_msg_nums, command.opaque) == (queue_offset, 32, OPAQUE_BASE + 1)


def test_the_benchmark_reads_the_code_and_the_next_offset_from_the_raw_bytes_of_a_response() -> None:
    """Of an answer only three numbers are looked at."""
    answer = (
        b"\0\0\0\x60" + b'{"code":11,"extFields":{"nextBeginOffset":"42"},"flag":1,"opaque":1000000009,"version":1}'
    )
    assert (slot_of(answer), code_of(answer), field_of(answer, b"nextBeginOffset")) == (9, 11, 42)


def test_the_send_benchmark_prints_its_rate_and_its_latencies(cli: RunCommand, name_server: str) -> None:
    """One line of JSON per run with every figure, against a broker that is there."""
    common = ("-n", name_server, "--topic", "BenchRuns", "--count", 400, "--warmup", 0, "--size", 32)
    sent = cli("bench", "send", *common, "--connections", 2, "--inflight", 8, "--pid", os.getpid()).json
    assert sent["messages"] >= 400
    assert sent["errors"] == 0
    assert sent["rate"] > 0
    assert 0 < sent["p50_ms"] <= sent["p99_ms"] <= sent["p999_ms"]
    assert sent["client_cpu_us"] >= 0
    assert sent["broker_cpu_us"] >= 0
    assert sent["machine"]["cores"] >= 1
    batched = cli("bench", "send", *common, "--batch", 16).json
    assert batched["requests"] * 16 == batched["messages"]
    stored = cli("topics", "show", "BenchRuns", "-n", name_server, "--json").json["messages"]
    assert stored >= sent["messages"] + batched["messages"]
    pulled = cli("bench", "consume", *common, "--connections", 2).json
    assert pulled["messages"] >= 400
    assert pulled["errors"] == 0


def test_the_command_bench_send_prints_ratios_of_the_measured_results_of_two_brokers(
    cli: RunCommand, name_server: str
) -> None:
    """Interleaved rounds, then the ratios: here of a broker with itself."""
    common = ("-n", name_server, "--topic", "BenchRatio", "--count", 64, "--warmup", 0)
    lines = cli("bench", "send", *common, "--against", name_server, "--rounds", 2).json_lines
    assert [line["bench"] for line in lines] == ["send"] * 4 + ["send ratio"]
    assert lines[-1]["rate"] > 0
    assert lines[-1]["rounds"] == 2


def test_bench_starts_its_own_broker_if_no_broker_address_is_given(cli: RunCommand) -> None:
    """Without a broker at hand it starts one, with the settings given, and measures its processor time."""
    outcome = cli(
        *("bench", "send", "--count", 200, "--warmup", 0, "--set", "flush.strategy=group_commit"),
        *("--set", "store.commit_log_file_bytes=4MiB", "--set", "index.enable=false"),
    )
    assert outcome.code == 0, outcome.err
    assert outcome.json["errors"] == 0
    assert outcome.json["broker_cpu_us"] is not None
    refused = cli("bench", "send", "--set", "nonsense")
    assert refused.code == 2
    assert "key=value" in refused.err


def test_bench_without_a_reachable_broker_exits_with_4(cli: RunCommand) -> None:
    """No broker, no figure."""
    outcome = cli("bench", "send", "-n", "127.0.0.1:1")
    assert outcome.code == 4
    assert outcome.out == ""


def test_a_bench_run_ends_if_all_requests_are_refused(cli: RunCommand, name_server: str) -> None:
    """A broker that refuses everything must not be asked for ever."""
    assert cli("topics", "create", "BenchRefused", "-n", name_server).code == 0
    common = ("-n", name_server, "--topic", "BenchRefused", "--count", 3, "--warmup", 0, "--connections", 1)
    refused = cli("bench", "send", *common, "--inflight", 1, "--batch", 64, "--size", 80_000).json
    assert refused["errors"] > 0
    assert refused["messages"] == 0


def test_benchmark_ratios_omit_figures_that_one_of_the_two_results_lacks() -> None:
    """Figures that are compared with others' must be right."""
    latencies_s = [n / 1000 for n in range(1, 1001)]
    assert percentile_ms(latencies_s, 0.5) == 501
    assert percentile_ms(latencies_s, 0.999) == 1000
    assert percentile_ms([], 0.5) == 0

    def result(rate: float, broker_cpu_us: float | None) -> BenchResult:
        return BenchResult(
            bench="send", target="t", topic="T", messages=1, requests=1, seconds=1.0, rate=rate, p50_ms=1.0,
            p99_ms=2.0, p999_ms=0.0, errors=0, error_codes={}, client_cpu_us=1.0, broker_cpu_us=broker_cpu_us,
            connections=1, inflight=1, size_bytes=1, batch=1,
        )  # fmt: skip

    found = ratios([result(30, None), result(10, None), result(20, None)], [result(10, 5.0), result(10, 5.0)])
    assert found["rate"] == 2.0
    assert "broker_cpu_us" not in found
    assert "p999_ms" not in found
