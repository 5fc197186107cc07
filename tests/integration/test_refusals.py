"""Asked anything in any wrong way, a broker and a name server say why not, with an id: over a real socket, for every code."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from bare_wire import Wire

import flintmq
from flintmq.remoting.wire.codes import RequestCode

REASON = re.compile(r" \[[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+(; [^\[\]]+)*\]$")
STATUSES = frozenset({19, 20, 21})
"""A pull that found nothing is no refusal."""
EVERYTHING = {
    "topic": "Nowhere", "group": "g", "consumerGroup": "g", "producerGroup": "p", "defaultTopic": "NONE", "a": "p",
    "b": "Nowhere", "c": "NONE", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "defaultTopicQueueNums": "4", "sysFlag": "0",
    "bornTimestamp": "0", "flag": "0", "queueId": "99999", "queueOffset": "0", "maxMsgNums": "1", "commitOffset": "-5",
    "suspendTimeoutMillis": "0", "subVersion": "0", "offset": "77", "timestamp": "-1", "delayLevel": "0", "clientID": "c",
    "clientId": "c", "msgId": "nonsense", "commitLogOffset": "3", "tranStateTableOffset": "0", "commitOrRollback": "8",
    "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1", "isForce": "true", "statsName": "NONE",
    "statsKey": "x", "namespace": "n", "value": "v", "cluster": "none", "brokerName": "none", "brokerAddr": "h:1",
    "clusterName": "none", "brokerId": "0", "haServerAddr": "", "index": "5", "count": "1", "accessKey": "abcdefgh",
    "groupName": "g", "srcGroup": "g", "destGroup": "h", "compareGroup": "g", "isOrder": "false", "bodyCrc32": "1",
    "readQueueNums": "-1", "writeQueueNums": "-1", "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
    "order": "false", "globalWhiteAddrs": "*", "aclFileFullPath": "", "filterServerAddr": "h:1",
}  # fmt: skip
"""Every field that any request has, naming what there is not."""
WAYS: tuple[tuple[dict[str, str], bytes], ...] = (
    ({}, b""),
    ({}, b"{not json"),
    (EVERYTHING, b""),
    (EVERYTHING, b"[1, 2]"),
    (dict.fromkeys(EVERYTHING, "x" * 300), b"{}"),
)


@pytest.mark.parametrize("served", ["broker", "name_server"])
def test_a_refused_request_of_any_request_code_gets_a_remark_with_a_reason_id(
    served: str, configure: Callable[..., Any], connect: Callable[[Any], Wire], unexpected: list[str]
) -> None:
    kind = flintmq.Broker if served == "broker" else flintmq.NameServer
    refused = 0
    with kind(configure()) as server:
        wire = connect(server)
        for code in sorted({*map(int, RequestCode), 13, 9999, 200_050}):
            for fields, body in WAYS:
                answer = wire.ask(code, fields, body)
                if answer.code != 0 and answer.code not in STATUSES:
                    refused += 1
                    assert REASON.search(answer.remark or ""), (code, answer.code, answer.remark)
    assert refused > 150, "hardly anything was refused"
