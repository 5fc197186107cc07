"""Tools that read a broker's configuration (request 26) find the same names at both brokers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

import flintmq
from flintmq.config import load_config
from flintmq.config.rocketmq.names import FIXED
from flintmq.remoting.client import AdminClient

from .conftest import Peer

OWN: Final = {"readOnlyCommitLogStorePaths", "timerMaxDelaySec", "tls.server.authClient", "tls.server.mode"}
"""Told here and not there: what RocketMQ leaves out, has from its version 5, or reads from system properties."""
OTHER_DEFAULTS: Final = {
    "brokerFastFailureEnable",
    "diskMaxUsedSpaceRatio",
    "haListenPort",
    "listenPort",
    "storePathCommitLog",
    "storePathRootDir",
    "timerWheelEnable",
}
"""Of the keys that can be set: set for this test, or decided otherwise (docs/settings.md)."""


@pytest.mark.slow
@pytest.mark.java
def test_java_and_flintmq_brokers_return_the_same_configuration_names(tmp_path: Path, peer: Peer) -> None:
    """And for all that nobody set, the same values, but for what is fixed here and explained in docs/settings.md."""

    async def ask(address: str) -> dict[str, str]:
        async with AdminClient(peer.namesrv) as admin:
            return await admin.broker_config(address)

    with peer.name_server():
        with peer.broker(tmp_path / "real"):
            theirs = asyncio.run(ask(f"127.0.0.1:{peer.port}"))
        settings = [f"store.path={tmp_path / 'own'}", "listen.port=0", f"namesrv.addresses={peer.namesrv}"]
        with flintmq.Broker(load_config(None, settings, {})) as broker:
            ours = asyncio.run(ask(broker.address))
    assert theirs.keys() == ours.keys() - OWN
    assert theirs.keys() == set((Path(__file__).parents[1] / "config" / "broker_config_4.9.7.txt").read_text().split())
    differ = {name for name in theirs if ours[name] != theirs[name]}
    assert differ - FIXED.keys() == OTHER_DEFAULTS
