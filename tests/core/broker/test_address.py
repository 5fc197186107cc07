"""A broker's address: clients and records see the same broker by a name and by an address."""

from __future__ import annotations

from flintmq.core.broker.address import BrokerAddress
from flintmq.core.record.host import pack_host


def test_clients_are_told_a_name_and_records_hold_the_address_behind_it() -> None:
    """A record has four bytes for a host, and a container's name is not its address."""
    address = BrokerAddress.of("mq.example", 10911, "10.0.0.7", listening_port=20911)
    assert address.host_port == "mq.example:10911"
    assert address.packed == pack_host("10.0.0.7", 10911)
    assert address.listening_port == 20911


def test_the_port_that_is_told_is_the_one_listened_on_where_nothing_else_is_said() -> None:
    """Only behind a proxy are there two ports."""
    assert BrokerAddress.of("127.0.0.1", 10911).listening_port == 10911
