"""A broker and a name server in this process, for clients to talk to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

import flintmq
from flintmq.client import sync


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a name server that knows one broker."""
    settings = [
        f"store.path={tmp_path_factory.mktemp('store')}", "store.commit_log_file_bytes=16777216",
        "store.consume_queue_file_bytes=20000", "index.max_hash_slot_num=1000", "index.max_index_num=4000",
        "listen.port=0", "listen.vip=false",
    ]  # fmt: skip
    with flintmq.NameServer(flintmq.load_config(None, ["nameserver.port=0"], {})) as server:
        config = flintmq.load_config(None, [*settings, f"namesrv.addresses={server.address}"], {})
        with flintmq.Broker(config):
            yield server.address


@pytest.fixture
def create_topic(name_server: str) -> Callable[[str, int], None]:
    """Return a function that creates a topic, and waits until the name server has heard of it from the broker."""

    def create(topic: str, queues: int) -> None:
        with sync.AdminClient(name_server) as admin:
            admin.create_topic(topic, queues=queues)
            give_up_s = time.monotonic() + 20
            while topic not in admin.topic_list():
                assert time.monotonic() < give_up_s
                time.sleep(0.005)

    return create
