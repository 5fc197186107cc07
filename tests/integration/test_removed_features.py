"""A feature is a plugin: without it a broker serves everything else, and says of the feature's requests that it has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flintmq
from flintmq.config import ConfigError
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.wire.codes import RequestCode

CODES: dict[str, tuple[int, ...]] = {
    "acl": (50, 51, 52, 53, 54),
    "filters": (),
    "registration": (),
    "replication": (),
    "retention": (306, 329),
    "tracing": (),
}
"""Every feature with the request codes that it answers."""

_SECRET = "ha.secret=0123456789abcdef"
ASKED_FOR = {
    "acl.enable": ("acl", "acl.enable=true"),
    "broker.role": ("replication", "broker.role=sync_master", _SECRET),
    "ha.enable": ("replication", "ha.enable=true", _SECRET),
    "pull.property_filter": ("filters", "pull.property_filter=true"),
    "pull.calc_filter_bitmap": ("filters", "pull.calc_filter_bitmap=true"),
    "namesrv.addresses": ("registration", "namesrv.addresses=127.0.0.1:1"),
    "tracing.otlp_endpoint": ("tracing", "tracing.otlp_endpoint=http://127.0.0.1:1/v1/traces"),
}
"""Settings that ask for a feature, each with the feature and what is configured."""


@pytest.mark.parametrize("feature", sorted(CODES))
def test_a_broker_without_an_optional_feature_serves_clients_but_refuses_requests_of_that_feature(
    feature: str, configure: Callable[..., Any], connect: Callable[[Any], Any], unexpected: list[str]
) -> None:
    """No other part of a broker may need a feature that is taken out."""
    with flintmq.Broker(configure(f"disabled_plugins={feature}")) as broker:
        wire = connect(broker)
        assert wire.send("T", b"hello").code == 0
        assert wire.pull("T").bodies == [b"hello"]
        for code in CODES[feature]:
            assert wire.ask(code).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_a_broker_without_any_optional_feature_stores_and_delivers_messages(
    configure: Callable[..., Any], connect: Callable[[Any], Any], unexpected: list[str]
) -> None:
    """The kernel is a broker by itself; what it stored is still there after a restart."""
    features = ",".join((*CODES, "delay", "retry", "spark_feed", "timer", "transactions"))
    for _start in range(2):
        with flintmq.Broker(configure(f"disabled_plugins={features}")) as broker:
            wire = connect(broker)
            assert wire.is_served()
            assert wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
    with flintmq.Broker(configure()) as broker:
        assert len(connect(broker).pull_all("Healthy", at_least=2)) == 2


@pytest.mark.parametrize("key", sorted(ASKED_FOR))
def test_a_setting_that_needs_a_missing_optional_feature_is_refused(key: str, configure: Callable[..., Any]) -> None:
    """A broker that starts without the protection or the copies its operator asked for would be worse than none."""
    feature, *configured = ASKED_FOR[key]
    broker = flintmq.Broker(configure(f"disabled_plugins={feature}", *configured))
    with pytest.raises(ConfigError, match=feature) as raised, broker:
        pass
    assert raised.value.key == key


def test_a_name_server_without_the_acl_plugin_does_not_start_if_its_settings_enable_acl(
    configure: Callable[..., Any],
) -> None:
    """Its routes decide where clients send to."""
    names = flintmq.NameServer(configure("disabled_plugins=acl", "nameserver.acl_enable=true"))
    with pytest.raises(ConfigError, match="acl") as raised, names:
        pass
    assert raised.value.key == "nameserver.acl_enable"
