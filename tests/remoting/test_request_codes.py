"""Every request code of the protocol is accounted for: in the enumeration, in docs/request-codes.md, and, where somebody
answers it, in a test."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import flintmq
from flintmq.remoting.wire.codes import RequestCode

ROOT = Path(str(flintmq.__file__)).resolve().parent
ROW = re.compile(r"\| (\d+) \| (\w+) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|")
ONLY_5X_OR_UNUSED = frozenset({13, 18, 22, 23, 27, 47, 60, 61, 212, 213, 214, 217, 225})
"""Below 330, what a 4.9 broker answers with code 3 and 5.x may not (docs/internals/protocol.md, Request codes)."""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flintmq_docs_tool", ROOT / "tools" / "docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows() -> dict[int, Any]:
    """The page's table: code → (name, broker's processor, name server, test)."""
    text = (ROOT / "docs" / "request-codes.md").read_text()
    return {int(found[0]): tuple(part.strip() for part in found[1:]) for found in ROW.findall(text)}


def test_every_request_code_has_a_row_in_the_documentation(rows: dict[int, Any]) -> None:
    """Under its name."""
    assert {code: row[0] for code, row in rows.items()} == {int(code): code.name for code in RequestCode}


def test_every_request_code_that_a_server_answers_or_sends_to_clients_has_a_test(
    tool: ModuleType, rows: dict[int, Any]
) -> None:
    """A processor that nobody asks in a test may answer anything."""
    broker, name_server = tool.answered_by()
    tests = tool.tested_by()
    wanted = {*broker, *name_server, *map(int, tool.PUSHED)}
    assert sorted(RequestCode(code).name for code in wanted - tests.keys()) == []
    for code in wanted:
        name, here, there, test = rows[code]
        assert here == (f"`{broker[code]}`" if code in broker else "sends it to clients" if code in tool.PUSHED else "")
        assert there == ("yes" if code in name_server else "")
        assert test == f"`{tests[code]}`", f"{name}: run python tools/docs.py"
        assert (ROOT / "tests" / test.strip("`")).exists()


def _protocol() -> str:
    shared = Path(os.environ.get("FLINTMQ_SHARED", ROOT.parent / "shared"))
    path = shared / "reference" / "protocol.md"
    if not path.exists():
        pytest.skip(f"the protocol's description is not at {path} (set FLINTMQ_SHARED)")
    return path.read_text()


def test_every_request_code_of_the_protocol_page_has_a_row_in_the_table_of_request_codes(rows: dict[int, Any]) -> None:
    """The tables of its section 2: number and name; where several share a row, their numbers."""
    section = _protocol().split("\n## 2.")[1].split("\n## 3.")[0].split("### 2.5")[0]
    found: dict[int, str] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        numbers = [int(number) for number in re.findall(r"\d+", cells[0])] if line.startswith("| ") else []
        for number in numbers:
            assert number in rows, f"{number} {cells[1]}"
            found[number] = cells[1].split(" ")[0] if len(numbers) == 1 else rows[number][0]
    assert len(found) > 80
    assert {number: name for number, name in found.items() if rows[number][0] != name} == {}


def test_every_request_code_without_a_handler_is_in_the_list_of_intentionally_unsupported_codes(
    tool: ModuleType,
) -> None:
    """Each of these is so by decision: RocketMQ has no handler, clients answer it, or it is dangerous."""
    broker, name_server = tool.answered_by()
    left = {int(code) for code in RequestCode} - {*broker, *name_server, *map(int, tool.PUSHED)}
    by_decision = ONLY_5X_OR_UNUSED | {
        int(code)
        for code in (
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,  # it told secrets
            RequestCode.SUSPEND_CONSUMER,
            RequestCode.RESUME_CONSUMER,
            RequestCode.RESET_CONSUMER_OFFSET_IN_CONSUMER,
            RequestCode.REGISTER_FILTER_SERVER,  # they ran code sent by clients
            RequestCode.REGISTER_MESSAGE_FILTER_CLASS,
        )
    }
    optional = {
        int(code)
        for code in (
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
            RequestCode.DELETE_ACL_CONFIG,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        )
    }
    """A plugin that is not always there answers these."""
    assert left - by_decision - optional == set()
