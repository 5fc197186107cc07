"""The options that several commands have: how they log."""

from __future__ import annotations

import json
from pathlib import Path

from .conftest import RunCommand
from .test_serve import finish, serving


def test_each_log_event_is_written_as_one_line_of_json_if_the_log_format_is_json(
    tmp_path: Path, cli: RunCommand, small: list[str]
) -> None:
    """For programs that gather logs: what is it, of which process, with which values; the supervised ones write it, too."""
    arguments = ("--log-level", "info", "--log-format", "json", "--brokers", 2)
    with serving("run", "--store", tmp_path / "s", *arguments, *small) as (process, ready):
        assert cli("topics", "create", "T", "-n", ready["namesrv"]).code == 0
        process.terminate()
        code, _out, err = finish(process)
    assert code == 0
    lines = [json.loads(line) for line in err.splitlines()]
    listening = {line["broker"]: line["fields"]["address"] for line in lines if line["event"] == "broker.listens"}
    assert listening.keys() == {"broker-a", "broker-b"}
    assert sorted(listening.values()) == sorted(ready["brokers"].split(","))
    assert {"namesrv.listens", "route.registered", "broker.stopped"} <= {line["event"] for line in lines}
