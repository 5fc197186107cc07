"""What is not switched on is not there: no step, no service, no follower, no import."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from flintmq import Broker
from flintmq.config import BrokerConfig, ConfigError
from flintmq.config.sections.models import ListenSection, StoreSection, TracingSection

_STARTS = """
import asyncio, sys
from flintmq import Broker, Message, load_config

async def work():
    async with Broker(load_config(None, ["store.path=" + sys.argv[1], "listen.enable=false"], {})) as broker:
        await broker.put([Message("Orders", b"hello", properties={"traceparent": "00-" + "1" * 32 + "-" + "1" * 16 + "-01"})])
        state = broker.state
        assert "traceparent" not in state.intake_steps.property_names
        assert not state.intake_steps.concerns_all
        assert not state.followers.all
        assert not [one for one in state.services() if "tracing" in type(one).__module__]
        assert len(state.store.reput.dispatchers) == 2

asyncio.run(work())
found = [name for name in sys.modules if name.startswith("opentelemetry") or name.startswith("flintmq.plugins.tracing.")]
assert found == ["flintmq.plugins.tracing.plugin"], found
"""


def test_a_broker_without_tracing_imports_no_tracing_code(tmp_path: Path) -> None:
    """Neither on the way of messages nor in memory."""
    root = Path(__file__).resolve().parents[3]
    code = f"import sys; sys.path.insert(0, {str(root.parent)!r})\n{_STARTS}" if root.name == "flintmq" else _STARTS
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)


def test_the_error_about_a_missing_tracing_package_names_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what to type, and which key it is about."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    config = BrokerConfig(
        listen=ListenSection(port=0, vip=False),
        store=StoreSection(path=str(tmp_path)),
        tracing=TracingSection(otlp_endpoint="http://127.0.0.1:9/v1/traces"),
    )
    with pytest.raises(ConfigError, match=r"pip install '\.\[otel\]'") as caught:
        asyncio.run(Broker(config).start())
    assert caught.value.key == "tracing.otlp_endpoint"
