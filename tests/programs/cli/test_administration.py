"""``topics``, ``groups``, ``status``: what administrators look at and change."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

import flintmq
from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.core.kernel.ports.alarm import Alarm
from flintmq.remoting.client import Consumer
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import encode_command, request
from flintmq.testing.store import message

from .conftest import SMALL, RunCommand


def test_topics_can_be_created_and_listed_and_shown_and_changed_and_deleted_by_the_topics_command(
    cli: RunCommand, name_server: str
) -> None:
    """Created, listed, shown, changed and deleted by name, in both kinds of output."""
    where = ("-n", name_server)
    assert cli("topics", "create", "Life", "--queues", 3, *where).code == 0
    for listing in (cli("topics", *where, "--json"), cli("topics", *where, "list", "--json")):
        row = next(row for row in listing.json if row["topic"] == "Life")
        assert (row["read_queues"], row["write_queues"], row["permission"]) == (3, 3, "rw")
        assert row["brokers"] == ["broker-a"]
    assert "Life" in cli("topics", *where).out
    cli("send", "Life", "x", "--queue", 2, *where)
    shown = cli("topics", "show", "Life", *where, "--json").json
    assert shown["messages"] == 1
    assert [queue["messages"] for queue in shown["queues"]] == [0, 0, 1]
    assert "Life: 1 messages" in cli("topics", "show", "Life", *where).out
    assert cli("topics", "create", "Life", "--queues", 4, "--permission", "r", *where, "--json").json["queues"] == 4
    assert cli("topics", "delete", "Life", *where).code == 0
    again = cli("topics", "delete", "Life", *where)
    assert again.code == 1
    assert "no topic Life" in again.err
    assert "Life" not in cli("topics", *where).out


def test_a_topic_can_be_created_on_one_broker_or_cluster(cli: RunCommand, tmp_path: Path) -> None:
    """A topic need not lie at every broker; a name that is none is answered with those that there are."""
    loaded = flintmq.load_config(None, SMALL, {})
    with flintmq.NameServer(loaded) as names, contextlib.ExitStack() as brokers:
        for name, cluster in (("one", "east"), ("two", "east"), ("three", "west")):
            own = [f"broker.name={name}", f"broker.cluster={cluster}", f"store.path={tmp_path / name}"]
            brokers.enter_context(flintmq.Broker(loaded.with_overrides([*own, f"namesrv.addresses={names.address}"])))
        where = ("-n", names.address)

        def brokers_of(topic: str) -> list[str]:
            rows = {row["topic"]: row["brokers"] for row in cli("topics", *where, "--json").json}
            return sorted(rows.get(topic, []))

        made = cli("topics", "create", "Mine", "--queues", 2, "--broker", "two", *where)
        assert (made.code, made.out) == (0, "topic Mine has 2 queues at two\n")
        assert brokers_of("Mine") == ["two"]
        assert (
            cli("topics", "create", "Mine", "--broker", "one", "--cluster", "east", *where, "--json").json["broker"]
            == "one"
        )
        assert brokers_of("Mine") == ["one", "two"]
        assert cli("topics", "create", "Eastern", "--cluster", "east", *where).code == 0
        assert brokers_of("Eastern") == ["one", "two"]
        for more, said in (
            ((), "no master is named four: there are one, three, two"),
            (("--cluster", "east"), "no master is named four in cluster east: there are one, two"),
        ):
            refused = cli("topics", "create", "Nowhere", "--broker", "four", *more, *where)
            assert refused.code == 1
            assert said in refused.err
        assert brokers_of("Nowhere") == []


def test_topics_list_hides_system_topics_unless_the_option_all_is_given(cli: RunCommand, name_server: str) -> None:
    """A dozen topics that nobody made hide those that somebody did."""
    seen = {row["topic"] for row in cli("topics", "-n", name_server, "--json").json}
    everything = {row["topic"] for row in cli("topics", "--all", "-n", name_server, "--json").json}
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "DefaultCluster"} <= everything - seen


def test_groups_can_be_created_and_shown_and_deleted_by_the_groups_command(
    cli: RunCommand, name_server: str, topic: str
) -> None:
    """A group's life, and how far it lags behind."""
    where = ("-n", name_server)
    assert cli("groups", "create", "Readers", "--retries", 3, *where).code == 0
    assert "Readers" in {row["group"] for row in cli("groups", *where, "--json").json}
    cli("send", topic, "a", "b", "--queue", 0, *where)
    cli("consume", topic, "-g", "Readers", "--count", 1, *where)
    shown = cli("groups", "show", "Readers", topic, *where, "--json").json
    assert shown["lag"] == 1
    assert "lag 1" in cli("groups", "show", "Readers", topic, *where).out
    assert cli("groups", "delete", "Readers", "--offsets", *where, "--json").json == {
        "group": "Readers",
        "deleted": True,
    }
    assert cli("groups", "delete", "Readers", *where).code == 1


def test_the_groups_command_warns_if_the_members_of_a_group_have_conflicting_subscriptions(
    cli: RunCommand, name_server: str, topic: str
) -> None:
    """Half a group that filters otherwise makes all of it miss messages: in RocketMQ nobody ever learns of it."""

    async def look() -> tuple[Any, Any, Any, str]:
        async with (
            Consumer("Torn", name_server, print) as one,
            Consumer("Torn", name_server, print) as two,
            Consumer("Torn", name_server, print) as odd,
        ):
            for consumer, expression in ((one, "A"), (two, "A"), (odd, "B")):
                await consumer.subscribe(topic, expression)
                async with asyncio.timeout(30):
                    while not await consumer.client.send_heartbeats():
                        await consumer.rebalance()  # until the name server knows the new topic
            where = ("-n", name_server)
            shown = await asyncio.to_thread(cli, "groups", "show", "Torn", *where)
            listed = await asyncio.to_thread(cli, "groups", *where, "--json")
            state = await asyncio.to_thread(cli, "status", *where, "--json")
            return shown, listed, state, odd.client.client_id

    shown, listed, state, odd_id = asyncio.run(look())
    assert shown.code == 0
    assert "members of Torn contradict each other" in shown.err
    (told,) = next(row for row in listed.json if row["group"] == "Torn")["contradictions"]
    (alarm,) = [one for one in state.json["alarms"] if one["id"] == "group.conflict"]
    assert (alarm["subject"], alarm["value"], odd_id in alarm["message"]) == ("Torn", 1, True)
    assert f"subscription to {topic}: 'A' of most, but 'B' of {odd_id}" in told
    assert cli("groups", "create", "Agreed", "-n", name_server).code == 0
    assert cli("groups", "show", "Agreed", "-n", name_server).err == ""


def test_topic_and_group_lists_show_data_of_answering_brokers_if_one_broker_does_not_answer(
    cli: RunCommand, tmp_path: Path
) -> None:
    """When one is down people ask for topics and groups most of all; a script must see that the answer is not whole."""
    loaded = flintmq.load_config(None, [*SMALL, f"store.path={tmp_path}", "topics.default_queue_nums=1"], {})
    queues = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicName": "T"}
    body = msgspec.json.encode({"topicConfigSerializeWrapper": {"topicConfigTable": {"T": queues}}})
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        gone = f"127.0.0.1:{nobody.getsockname()[1]}"
    fields = {
        "brokerName": "gone",
        "brokerAddr": gone,
        "clusterName": "DefaultCluster",
        "brokerId": "0",
        "haServerAddr": gone,
    }
    with (
        flintmq.NameServer(loaded) as names,
        socket.create_connection(names.address.split(":")) as registered,  # as long as it is open the broker is known
        flintmq.Broker(loaded.with_overrides([f"namesrv.addresses={names.address}"])) as broker,
    ):
        registered.sendall(encode_command(request(RequestCode.REGISTER_BROKER, fields, body)))
        assert b'"code":0' in registered.recv(4096), "it is registered"
        broker.put([flintmq.Message("T", b"x")])

        async def consume() -> None:
            broker.state.groups.select("Readers")
            broker.state.offsets.commit("T", "Readers", 0, 0, "127.0.0.1:1")

        broker.call(consume)
        where = ("-n", names.address, "--json")
        for asked, of_the_other in (
            (("topics",), lambda found: [row["brokers"] for row in found if row["topic"] == "T"] == [["broker-a"]]),
            (("topics", "show", "T"), lambda found: found["messages"] == 1),
            (
                ("groups",),
                lambda found: [row["brokers"] for row in found if row["group"] == "Readers"] == [["broker-a"]],
            ),
            (("groups", "show", "Readers", "T"), lambda found: found["lag"] == 1),
        ):
            outcome = cli(*asked, *where)
            assert (outcome.code, of_the_other(outcome.json)) == (1, True), asked
            assert f"{gone} does not answer, so what it has is missing here" in outcome.err
        deleted = cli("topics", "delete", "Nowhere", *where)
        assert (deleted.code, gone in deleted.err) == (1, True)
    assert cli("topics", *where).code == 4, "where nobody answers there is nothing to show"


def test_an_offset_reset_of_an_unknown_group_is_refused(cli: RunCommand, name_server: str, topic: str) -> None:
    """A misspelled name is no new group; nor is what is no time."""
    outcome = cli("groups", "reset", "Nobody", topic, "--to", "first", "-n", name_server)
    assert outcome.code == 1
    assert outcome.err.startswith("flintmq: error: there is no group Nobody")
    assert cli("groups", "reset", "Nobody", topic, "--to", "soon", "-n", name_server).code == 2


def test_status_shows_brokers_and_lag(cli: RunCommand, name_server: str, topic: str) -> None:
    """The first look at a cluster: who is there, how busy, how full, who lags."""
    where = ("-n", name_server)
    cli("send", topic, "x", *where)
    cli("consume", topic, "-g", "Slow", "--count", 1, *where)
    found = cli("status", "--topic", topic, *where, "--json").json
    (broker,) = found["brokers"]
    assert (broker["cluster"], broker["broker"], broker["id"]) == ("DefaultCluster", "broker-a", 0)
    assert broker["version"] == "V4_9_7"
    assert broker["put_today"] >= 1
    assert broker["commit_log_bytes"] > 0
    assert 0 < broker["disk_ratio"] <= 1
    assert {"group": "Slow", "lag": 0} in found["groups"]
    text = cli("status", "--topic", topic, *where).out
    assert "broker-a:0" in text
    assert "Slow" in text


def test_status_shows_the_state_of_the_export_of_messages_to_a_landing_zone(cli: RunCommand, tmp_path: Path) -> None:
    """How far it is behind, and why it stands still when it does: the operator sees it where the rest is."""
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    settings = [*SMALL, f"store.path={tmp_path / 'store'}", "dispatchers=consume_queue,index,spark_feed"]
    loaded = flintmq.load_config(
        None, [*settings, f"spark_feed.landing.path={tmp_path / 'zone'}", "spark_feed.landing.engine=thread"], {}
    )
    with (
        flintmq.NameServer(loaded) as names,
        flintmq.Broker(loaded.with_overrides([f"namesrv.addresses={names.address}"])) as broker,
    ):
        broker.put([flintmq.Message("T", b"x") for _ in range(10)])
        (found,) = cli("status", "-n", names.address, "--json").json["brokers"]
        assert found["feed"]["messages"] == 10
        assert found["feed"]["landing"]["state"] in ("starting", "following")
        assert found["feed"]["landing"]["lost_bytes"] == 0
        text = cli("status", "-n", names.address).out
        assert "landing zones" in text


def test_status_shows_the_bytes_cut_from_the_log_at_the_last_start(cli: RunCommand, tmp_path: Path) -> None:
    """The store was not left in order, and bytes lie behind its end: nobody would look for them in flint/quarantine."""
    loaded = flintmq.load_config(None, [*SMALL, f"store.path={tmp_path / 'store'}"], {})
    with flintmq.Broker(loaded) as broker:
        broker.put([flintmq.Message("T", b"whole")])
        end = broker.state.store.commit_log.max_offset_bytes
    (tmp_path / "store" / "abort").touch()
    with next((tmp_path / "store" / "commitlog").iterdir()).open("r+b") as file:
        file.seek(end)
        file.write(b"torn")
    with (
        flintmq.NameServer(loaded) as names,
        flintmq.Broker(loaded.with_overrides([f"namesrv.addresses={names.address}"])),
    ):
        (row,) = cli("status", "-n", names.address, "--json").json["brokers"]
        text = cli("status", "-n", names.address).out
    assert row["last_start"]["cut"]["start_offset_bytes"] == end
    assert [one["name"] for one in row["quarantine"]["files"]] == [row["last_start"]["cut"]["file"]]
    assert "not left in order" in text
    assert f"log cut at byte {end:,}" in text
    assert "quarantine" in text


def test_status_of_a_cluster_without_brokers_exits_with_1(cli: RunCommand) -> None:
    """A check that only asks for its exit code must not take it for a healthy one."""
    with flintmq.NameServer(flintmq.load_config(None, ["listen.port=0"], {})) as names:
        found = cli("status", "-n", names.address, "--json")
        assert (found.code, found.json["brokers"]) == (1, [])
        assert [alarm["id"] for alarm in found.json["alarms"]] == ["broker.none"]
        text = cli("status", "-n", names.address)
        assert text.code == 1
        assert "know no broker" in text.out


def test_status_shows_an_alarm_for_an_unreadable_record(cli: RunCommand, tmp_path: Path) -> None:
    """Bytes of the log are overwritten between append and dispatch: the operator sees it in both kinds of output and in the
    exit code, and whoever sends is refused."""
    loaded = flintmq.load_config(None, [*SMALL, f"store.path={tmp_path / 'store'}"], {})
    with (
        flintmq.NameServer(loaded) as names,
        flintmq.Broker(loaded.with_overrides([f"namesrv.addresses={names.address}"])) as broker,
    ):
        broker.put([flintmq.Message("T", b"whole")])
        assert cli("status", "-n", names.address).code == 0
        healthy = cli("status", "-n", names.address, "--json").json
        assert "alarm" not in healthy["brokers"][0]
        assert healthy["alarms"] == []
        assert healthy["brokers"][0]["last_start"]["last_stop"] == "clean"
        assert healthy["brokers"][0]["quarantine"]["file_count"] == 0

        async def damage() -> None:
            store = broker.state.store
            (request,) = store.put([message("T", 0, b"spoilt")]).records
            store.reput.forget()
            file = store.commit_log.queue.files[-1]
            file.region.write(request.commit_log_offset_bytes - file.start, bytes(64))
            broker.state.dispatch()

        broker.call(damage)
        found = cli("status", "-n", names.address, "--json")
        assert found.code == 1
        (row,) = found.json["brokers"]
        assert "store.damaged" in row["alarm"]
        assert "no record at position" in row["alarm"]
        (alarm,) = found.json["alarms"]
        assert {key: alarm[key] for key in ("id", "level", "broker", "address")} == {
            "id": "store.damaged",
            "level": "critical",
            "broker": "broker-a",
            "address": broker.address,
        }
        assert "no record at position" in alarm["message"]
        text = cli("status", "-n", names.address)
        assert text.code == 1
        assert "ALARM broker-a:0" in text.out
        assert "store.damaged" in text.out
        sent = cli("send", "T", "x", "-n", names.address)
        assert sent.code == 1
        assert "store.damaged" in sent.err


def test_status_shows_an_alarm_for_a_broker_that_does_not_answer(cli: RunCommand, tmp_path: Path) -> None:
    """A process that is stopped, or a machine that is gone: name servers name it for two minutes more, and a health check
    has to see it meanwhile."""
    loaded = flintmq.load_config(None, [*SMALL, f"store.path={tmp_path / 'store'}"], {})
    with flintmq.NameServer(loaded) as names, socket.create_server(("127.0.0.1", 0), backlog=1) as silent:
        port = silent.getsockname()[1]
        named = loaded.with_overrides([f"namesrv.addresses={names.address}"])
        other = named.with_overrides(["broker.name=broker-b", f"store.path={tmp_path / 'other'}"])
        with (
            flintmq.Broker(named.with_overrides([f"listen.advertised_port={port}"])) as stopped,
            flintmq.Broker(other) as broker,
        ):
            for one in stopped, broker:
                one.put([flintmq.Message("T", b"x")])

            async def commit() -> None:
                broker.state.offsets.commit("T", "billing", 0, 0)

            broker.call(commit)
            found = cli("status", "--topic", "T", "-n", names.address, "--json")
            text = cli("status", "-n", names.address)
    (alarm,) = found.json["alarms"]
    assert (found.code, text.code) == (1, 1)
    assert found.json["groups"] == [{"group": "billing", "lag": 1}], "what the other one knows is shown"
    assert (alarm["id"], alarm["level"], alarm["subject"]) == ("broker.missing", "critical", "broker-a")
    assert f"no answer from 127.0.0.1:{port}" in alarm["message"]
    assert "broker.missing" in text.out


class FailingPlugin:
    """Raises when it is told that the broker starts."""

    plugin_name = "failing"

    @hookimpl
    def flintmq_broker_starting(self, api: object) -> None:
        raise ValueError("not ready at all")


def test_status_shows_plugins_that_failed(cli: RunCommand, tmp_path: Path) -> None:
    """Which, how often and with what, for people and for programs; nothing where nobody failed."""
    loaded = flintmq.load_config(None, [*SMALL, f"store.path={tmp_path / 'store'}"], {})
    with flintmq.NameServer(loaded) as names:
        named = loaded.with_overrides([f"namesrv.addresses={names.address}", "broker.name=b"])
        with flintmq.Broker(named, plugins=[FailingPlugin()]) as broker:
            (row,) = cli("status", "-n", names.address, "--json").json["brokers"]
            (failing,) = row["plugins"]
            assert failing == {
                "name": "failing",
                "errors": 1,
                "last_error": "flintmq_broker_starting: ValueError: not ready at all",
                "switched_off": "",
                "switched_off_times": 0,
            }
            assert row["loop_blocked"] == {"times": 0, "max_ms": 0, "by": ""}
            shown = " ".join(cli("status", "-n", names.address).out.split())
            assert "plugins that failed" in shown
            assert "failing" in shown
            assert "not ready at all" in shown
            assert "stood still" not in shown
            traced = cli("plugins", "--trace", "-b", broker.address, "--json").json
            (call,) = [one for one in traced if one["hook"] == "flintmq_broker_starting"]
            assert (call["plugin"], call["calls"], call["errors"]) == ("failing", 1, 1)
            assert call["outcome"] == "raised ValueError: not ready at all"
            assert "not ready at all" in cli("plugins", "--trace", "-b", broker.address).out


class Worried:
    """A plugin whose service has an alarm of its own, as grave as it is told."""

    plugin_name = "worried"

    def __init__(self, level: Any) -> None:
        self.level = level

    @hookimpl
    def flintmq_services(self, register: Any) -> None:
        register("worried", lambda context: self)

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def alarms(self) -> list[Alarm]:
        return [Alarm("worried.odd", self.level, "[bold]G\n", "look | there", 7, "ms", 5, "broker.name")]


@pytest.mark.parametrize(("level", "code"), [("warning", 0), ("critical", 1)])
def test_status_exits_with_1_only_for_critical_alarms(cli: RunCommand, tmp_path: Path, level: str, code: int) -> None:
    """A health check must not restart a broker because a consumer is slow; what a name holds is text, and on one line."""
    loaded = flintmq.load_config(None, [*SMALL, f"store.path={tmp_path / 'store'}"], {})
    with flintmq.NameServer(loaded) as names:
        named = loaded.with_overrides([f"namesrv.addresses={names.address}"])
        with flintmq.Broker(named, plugins=[Worried(level)]) as broker:
            found = cli("status", "-n", names.address, "--json")
            assert found.code == code
            assert found.json["alarms"] == [
                {
                    "broker": "broker-a",
                    "address": broker.address,
                    "id": "worried.odd",
                    "level": level,
                    "subject": "[bold]G\\n",
                    "message": "look | there",
                    "value": 7,
                    "unit": "ms",
                    "limit": 5,
                    "key": "broker.name",
                }
            ]
            assert "alarms" not in found.json["brokers"][0]
            text = cli("status", "-n", names.address)
            assert text.code == code
            (line,) = (line for line in text.out.splitlines() if "worried.odd" in line)
            for cell in (level, "[bold]G\\n", "look | there", "broker.name"):
                assert cell in line
