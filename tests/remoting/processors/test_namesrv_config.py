"""The name server's own processors keep the rules that the kit holds plugins' processors to."""

from __future__ import annotations

from flintmq.config import NamesrvConfig
from flintmq.core.kernel.ports.processor import declared_by
from flintmq.core.route.kv_config import KVConfigManager
from flintmq.core.testing.processor_kit import Sample, check_request_processor
from flintmq.remoting.processors.namesrv_config import NamesrvConfigProcessor, NamesrvSettings
from flintmq.remoting.wire.codes import RequestCode


def test_values_and_settings_by_the_kit() -> None:
    """A value that was put is found until it is deleted; settings are told without an error."""
    key = {"namespace": "N", "key": "k"}
    samples = [
        Sample(RequestCode.PUT_KV_CONFIG, {**key, "value": "v"}),
        Sample(RequestCode.GET_KV_CONFIG, key),
        Sample(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"}),
        Sample(RequestCode.DELETE_KV_CONFIG, key),
        Sample(RequestCode.GET_KV_CONFIG, key),
        Sample(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true"),
        Sample(RequestCode.GET_NAMESRV_CONFIG),
    ]
    settings = NamesrvSettings(NamesrvConfig())
    answers = check_request_processor(
        lambda: NamesrvConfigProcessor(KVConfigManager(), settings), declared_by(NamesrvConfigProcessor), samples
    )
    assert [answer.code for answer in answers] == [0, 0, 0, 0, 22, 0, 0]
    assert answers[1].ext_fields == {"value": "v"}
    assert settings.config.order_message_enable
    assert b"orderMessageEnable=true" in bytes(answers[-1].body)
