"""Bent requests that are signed all the same: who may send them is decided by what they say, and decided always."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from faults import watched_log
from mutants import Mutants
from seeds import seeds
from test_decoders import judge

from flintmq.config.secret import Secret
from flintmq.config.sections.models import AclAccount, AclSection
from flintmq.core.errors import FrameError, RefusedError
from flintmq.core.kernel.ports.access import Caller
from flintmq.plugins.acl.account_store import AccountStore
from flintmq.plugins.acl.authenticator import AclAuthenticator
from flintmq.remoting.wire.command import RemotingCommand, decode_command
from flintmq.remoting.wire.signature import add_signature
from flintmq.testing.clock import ManualClock
from flintmq.tests.support.request_headers import DECLARED

SECRET = Secret("a secret of some length")


@pytest.mark.timeout(300)
def test_a_mutated_signed_request_is_accepted_only_if_the_signing_account_has_the_needed_permission(
    fuzz_frames: int, fuzz_seed: int, tmp_path: Path
) -> None:
    """An account with few rights signs whatever comes: it passes or is refused, quickly, and never passes without the right."""
    account = AclAccount(accessKey="fuzz-account", secretKey=SECRET, topicPerms=("T=PUB|SUB",), groupPerms=("G=SUB",))
    clock = ManualClock()
    store = AccountStore(AclSection(accounts=(account,)), tmp_path / "none.yml", clock)
    door = AclAuthenticator(store, clock, trace_topic="RMQ_SYS_TRACE_TOPIC", extra={}, strict=False)
    door.topic_at = lambda commit_log_offset_bytes: "U" if commit_log_offset_bytes == 0 else None
    mutants = Mutants(fuzz_seed, seeds())
    outcomes: Counter[bool] = Counter()

    def authenticate(command: RemotingCommand) -> None:
        fields = dict(command.ext_fields or {})
        add_signature(fields, command.body, "fuzz-account", SECRET, "")
        rule = DECLARED[command.code].needs if command.code in DECLARED else None
        door.authenticate(Caller("127.0.0.1", command.code, fields, command.body, rule))

    with watched_log():
        for _ in range(max(1_000, fuzz_frames // 10)):
            try:
                command = decode_command(mutants.frame()[4:])
            except FrameError:
                continue
            passed = judge("authenticate", authenticate, command, (RefusedError,))
            outcomes[passed] += 1
            if command.code in (10, 324) and passed:
                assert (command.ext_fields or {}).get("topic") in ("T", "%RETRY%G", "RMQ_SYS_TRACE_TOPIC")
            assert not (passed and command.code in (17, 25, 50, 103, 207, 215)), command.code
    assert outcomes[True] > fuzz_frames // 1_000
    assert outcomes[False] > fuzz_frames // 1_000
