"""Services, intake steps and system topics as a third party's plugin brings them to a whole broker."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from flintmq import Broker, Message
from flintmq.config import BrokerConfig
from flintmq.config.sections.models import ListenSection, StoreSection
from flintmq.core.broker.api import BrokerApi
from flintmq.core.errors import PluginError, RefusedError
from flintmq.core.kernel.hookspecs import ApiContext, hookimpl
from flintmq.core.kernel.ports import Alarm, Sent, SystemTopic
from flintmq.core.record.record import MessageExtBrokerInner


def config(root: Path) -> BrokerConfig:
    return BrokerConfig(listen=ListenSection(host="127.0.0.1", port=0), store=StoreSection(path=str(root)))


class Noted:
    """A service that notes its life in a list that several share."""

    def __init__(self, api: BrokerApi, name: str, life: list[str], fails_in: str = "") -> None:
        self.api, self.name, self.life, self.fails_in = api, name, life, fails_in

    def _note(self, what: str) -> None:
        self.life.append(f"{what} {self.name}")
        if self.fails_in == what:
            raise RuntimeError(f"{self.name} cannot {what}")

    def start(self) -> None:
        self._note("start")

    async def ready(self) -> None:
        self._note("ready")

    async def withdraw(self) -> None:
        self._note("withdraw")

    async def stop(self) -> None:
        self._note("stop")

    def persist(self) -> None:
        self._note("persist")

    def runtime_info(self) -> Mapping[str, str]:
        return {f"figure_{self.name}": "1"}

    def health(self) -> str:
        return "not well" if self.fails_in else ""


class Redirect:
    """Sends messages with the property HOLD to a topic of the feature."""

    property_names = frozenset({"HOLD"})
    topic_prefixes = ()

    def __init__(self, api: BrokerApi) -> None:
        self._api = api

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        if message.properties["HOLD"] == "never":
            raise RefusedError(13, "held for ever", reason="hold.never")
        message.topic = "HOLD_TOPIC"
        message.queue_id = 0
        return True


class Feature:
    """A third party's plugin with two services, a step and a topic."""

    plugin_name = "feature"

    def __init__(self, fails_in: str = "") -> None:
        self.life: list[str] = []
        self.fails_in = fails_in

    @hookimpl
    def flintmq_services(self, register: Any) -> None:
        register("one", lambda context: Noted(context.api, "one", self.life, self.fails_in))
        register("none", lambda context: None)
        register("two", lambda context: Noted(context.api, "two", self.life))

    @hookimpl
    def flintmq_intake_steps(self, register: Any) -> None:
        register("hold", lambda context: Redirect(context.api))

    @hookimpl
    def flintmq_system_topics(self, register: Any) -> None:
        register(SystemTopic("HOLD_TOPIC", queue_nums=1))


async def figures(broker: Broker) -> Mapping[str, str]:
    return broker.api.figures.texts()


def test_services_start_in_order_and_stop_in_reverse(tmp_path: Path) -> None:
    """A service may use what an earlier one started, as long as it runs."""
    feature = Feature()

    async def live() -> None:
        async with Broker(config(tmp_path), plugins=[feature]) as broker:
            found = await figures(broker)
            assert (found["figure_one"], found["figure_two"]) == ("1", "1")
            assert not any(name.startswith("serviceTrouble") for name in found)
            assert broker.state.service(Noted).name == "one"

    asyncio.run(live())
    ended = ["withdraw two", "withdraw one", "stop two", "stop one"]
    lived = [what for what in feature.life if not what.startswith("persist")]
    assert lived == ["start one", "start two", "ready one", "ready two", *ended]
    persisted = [what for what in feature.life if what.startswith("persist")]
    assert persisted == ["persist two", "persist one"], "the tables that features put positions into are written last"


@pytest.mark.parametrize("fails_in", ["start", "ready", "withdraw", "stop", "persist"])
def test_the_error_of_a_plugin_service_is_counted_and_the_remaining_services_run(tmp_path: Path, fails_in: str) -> None:
    """One feature's defect must not keep a broker from starting or stopping."""
    feature = Feature(fails_in)

    async def live() -> str:
        async with Broker(config(tmp_path), plugins=[feature]) as broker:
            await broker.put([Message("T", b"x")])
            assert (await figures(broker))["serviceTrouble_one"] == "not well"
        (info,) = (info for info in broker.kernel.describe() if info.name == "feature")
        assert info.errors == 1
        return info.last_error

    assert f"one cannot {fails_in}" in asyncio.run(live())
    assert "stop two" in feature.life


def test_a_plugin_service_without_required_methods_makes_the_start_fail(tmp_path: Path) -> None:
    """A mistake is found at the start, not at the stop."""

    class Broken:
        plugin_name = "broken"

        @hookimpl
        def flintmq_services(self, register: Any) -> None:
            register("half", lambda context: object())

    with pytest.raises(PluginError, match=r"broken.*flintmq_services: the service 'half'.*expected start\(\)"):
        asyncio.run(Broker(config(tmp_path), plugins=[Broken()]).start())


@pytest.mark.parametrize(
    ("method", "function", "expected"),
    [
        ("follow", lambda self: None, r"expected follow\(positions\), a plain method; found"),
        ("ready", lambda self, more: None, r"expected ready\(\), plain or 'async def'; found"),
        ("on_stored", lambda self: None, r"expected on_stored\(stored\), a plain method; found"),
    ],
)
def test_a_broker_does_not_start_if_an_optional_method_of_a_service_has_wrong_parameters(
    tmp_path: Path, method: str, function: Any, expected: str
) -> None:
    """The ports say what each method of a service is called with."""
    kind = type("Odd", (), {"start": lambda self: None, "stop": lambda self: None, method: function})

    class Broken:
        plugin_name = "broken"

        @hookimpl
        def flintmq_services(self, register: Any) -> None:
            register("odd", lambda context: kind())

    with pytest.raises(PluginError, match=f"broken.*flintmq_services: the service 'odd'.*{expected}"):
        asyncio.run(Broker(config(tmp_path), plugins=[Broken()]).start())


def test_a_plugin_service_can_return_its_alarms_as_a_generator(tmp_path: Path) -> None:
    """Alarms and measurements are any iterables, as their ports say."""

    class Watchful:
        async def start(self) -> None: ...

        async def stop(self) -> None: ...

        def alarms(self) -> Iterator[Alarm]:
            yield Alarm("shop.closed", "warning", "", "the shop is closed")

    class Plugin:
        plugin_name = "watchful"

        @hookimpl
        def flintmq_services(self, register: Any) -> None:
            register("watchful", lambda context: Watchful())

    async def live() -> list[str]:
        async with Broker(config(tmp_path), plugins=[Plugin()]) as broker:
            return [alarm.id for alarm in broker.api.alarms.current()]

    assert "shop.closed" in asyncio.run(live())


def test_a_plugin_can_redirect_or_refuse_sent_messages_depending_on_a_message_property(tmp_path: Path) -> None:
    """A message that names the step's property lies in the feature's topic; others, and the topic itself, are as ever."""

    async def live() -> None:
        async with Broker(config(tmp_path), plugins=[Feature()]) as broker:
            held, plain = await broker.put(
                [Message("T", b"x", properties={"HOLD": "1"}), Message("T", b"y", properties={"OTHER": "1"})]
            )
            store = broker.state.store
            assert [store.reader.message_at(one.commit_log_offset_bytes).topic for one in (held, plain)] == [
                "HOLD_TOPIC",
                "T",
            ]  # type: ignore[union-attr]
            with pytest.raises(RefusedError, match="held for ever"):
                await broker.put([Message("T", b"x", properties={"HOLD": "never"})])
            with pytest.raises(RefusedError, match=r"Sending message to topic\[HOLD_TOPIC\] is forbidden"):
                await broker.put([Message("HOLD_TOPIC", b"x")])
            assert "HOLD_TOPIC" in broker.state.topics.system_topics

    asyncio.run(live())


class Alarmed(Noted):
    """A service with alarms, or with what takes their place."""

    told: Any = list

    def alarms(self) -> Any:
        return self.told()


@pytest.mark.parametrize(
    ("told", "shown", "error"),
    [
        (lambda: [Alarm("mine.odd", "warning", "a\nb", "look there")], ["mine.odd"], ""),
        (lambda: (Alarm(f"mine.n{number}", "warning", "", "x") for number in itertools.count()), 200, ""),
        (lambda: [Alarm(7, "warning", "", "x")], [], "must be <class 'str'>"),  # type: ignore[arg-type]
        (lambda: [Alarm("mine.odd", "warning", "", "x", float("nan"))], [], "Expected `int | float`"),
        (lambda: ["mine.odd"], [], "expected alarms to return Alarm objects"),
        (lambda: 7, [], "not iterable"),
    ],
)
def test_invalid_alarms_of_a_plugin_service_are_dropped_and_recorded_as_an_error_of_the_plugin(
    tmp_path: Path, told: Any, shown: list[str] | int, error: str
) -> None:
    """Whatever it returns, the broker's other alarms are told, and there are only so many."""
    feature = Feature()

    async def live() -> tuple[list[Alarm], str]:
        async with Broker(config(tmp_path), plugins=[feature, AlarmedPlugin(told)]) as broker:
            alarms = broker.api.alarms.current()
            (info,) = (info for info in broker.kernel.describe() if info.name == "alarmed")
            return alarms, info.last_error

    alarms, last_error = asyncio.run(live())
    if isinstance(shown, int):
        assert len(alarms) == shown
    else:
        assert [alarm.id for alarm in alarms] == shown
        assert not any("\n" in alarm.subject for alarm in alarms)
    assert (error in last_error) if error else not last_error


class AlarmedPlugin:
    """Registers the service."""

    plugin_name = "alarmed"

    def __init__(self, told: Any) -> None:
        self.told = told

    @hookimpl
    def flintmq_services(self, register: Any) -> None:
        def make(context: ApiContext) -> Alarmed:
            made = Alarmed(context.api, "alarmed", [])
            made.told = self.told
            return made

        register("alarmed", make)


class Worded:
    """A service that says where it listens."""

    def __init__(self, words: Any) -> None:
        self.words = words

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def ready_words(self) -> Any:
        return self.words


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"mine": "127.0.0.1:1"}, ""),
        ({"pid": "1"}, "found the name 'pid'"),
        ({"mine": "a b"}, "has blanks"),
        ({"mine": "x\nREADY"}, "has blanks"),
        ({"mine": ""}, "is empty"),
        ({"Mi ne": "x"}, "found the name 'Mi ne'"),
        ({"mine": 1}, "which are not both text"),
        (None, "NoneType"),
    ],
)
def test_the_line_printed_by_a_ready_broker_omits_invalid_values_from_plugins(
    tmp_path: Path, words: Any, error: str
) -> None:
    """Scripts split the line at blanks and equal signs: a plugin's text must not become another word, or a line."""

    class Speaks:
        plugin_name = "speaks"

        @hookimpl
        def flintmq_services(self, register: Any) -> None:
            register("speaks", lambda context: Worded(words))
            register("other", lambda context: Worded({"mine": "127.0.0.1:2", "other": "127.0.0.1:3"}))

    async def live() -> None:
        async with Broker(config(tmp_path), plugins=[Speaks()]) as broker:
            found = broker.ready_words
            assert found == {"mine": "127.0.0.1:2" if error else "127.0.0.1:1", "other": "127.0.0.1:3"}
            (info,) = (info for info in broker.kernel.describe() if info.name == "speaks")
            assert error in info.last_error
            assert info.errors == bool(error)

    asyncio.run(live())
