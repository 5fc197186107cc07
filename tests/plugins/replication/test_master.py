"""Whether replication listens where it should, and what it lets go at a stop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from flintmq import Broker
from flintmq.config import BrokerConfig, load_config
from flintmq.core.errors import RemotingError
from flintmq.core.log.epochs import MASTER
from flintmq.plugins.replication.service import ReplicationService
from flintmq.remoting.server.descriptors import bind

SECRET = "ha.secret=0123456789abcdef"


def configured(root: Path, *settings: str) -> BrokerConfig:
    base = ("listen.port=0", "listen.vip=false", f"store.path={root}", "broker.role=sync_master", SECRET)
    return load_config(None, [*base, *settings], {}).config


def test_a_master_that_stops_ends_every_pending_wait_for_replication(tmp_path: Path) -> None:
    """Slaves tell by the epoch what one master wrote; a promise that nobody can keep any more must end."""

    async def live() -> None:
        async with Broker(configured(tmp_path)) as broker:
            replication = broker.state.service(ReplicationService).end
            assert broker.state.store.epochs.epochs.current.cause == MASTER
            assert broker.ha_port == replication.ha_port > 0
            assert not broker.state.has_master()
            gate = replication.gate
            assert gate is not None
            gate.joined("slave", broker.state.store.watermarks.wrote)
            waiter = gate.submit(broker.state.store.watermarks.wrote + 1)
            assert waiter.status is None
        assert waiter.status is not None

    asyncio.run(live())


def test_the_start_of_a_broker_fails_if_its_replication_port_is_in_use(tmp_path: Path) -> None:
    """A master without its port would serve, and no slave could follow."""
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RemotingError, match=str(port)), Broker(configured(tmp_path, f"listen.ha_port={port}")):
            pass
    with Broker(configured(tmp_path, f"listen.ha_port={port}")) as broker:
        assert broker.ha_port == port
