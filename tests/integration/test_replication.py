"""A slave follows its master: byte for byte, through rolls, cuts and restarts; and it is read from when the master is gone."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bare_wire import Wire, settings
from replicas import (
    QUICK,
    assert_same_log,
    assert_same_queues,
    caught_up,
    end_of,
    eventually,
    fill_log,
    master_settings,
    plain_bodies,
    slave_settings,
)

import flintmq
from flintmq.config import load_config
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.io import fastjson
from flintmq.plugins.delay.plugin import DelayService
from flintmq.plugins.replication.service import ReplicationService
from flintmq.plugins.timer.plugin import TimerService
from flintmq.programs.cluster_view.figures import replication_of
from flintmq.remoting.client.pull_consumer import PullConsumer
from flintmq.remoting.wire.codes import RequestCode
from flintmq.testing.clock import ManualClock

Connect = Callable[[Any], Wire]
pytestmark = pytest.mark.timeout(120)

NEW_TOPIC = {
    "topic": "New",
    "defaultTopic": "TBW102",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
}


def test_a_slave_has_the_same_bytes_in_its_commit_log_and_consume_queues_as_its_master(
    tmp_path: Path, connect: Connect, unexpected: list[str]
) -> None:
    """Messages of every kind, over several files, from before and after the slave came."""
    with flintmq.Broker(master_settings(tmp_path / "m", "delay.enable=false")) as master:
        wire = connect(master)
        bodies = fill_log(wire, 40, "before")
        with flintmq.Broker(slave_settings(tmp_path / "s", master)) as slave:
            bodies += fill_log(wire, 60, "after")
            caught_up(master, slave)
            assert slave.state.store.epochs.epochs == master.state.store.epochs.epochs
    assert len(list((tmp_path / "m" / "commitlog").iterdir())) > 2
    assert_same_log(tmp_path / "m", tmp_path / "s")
    assert_same_queues(tmp_path / "m", tmp_path / "s")
    assert not unexpected


def test_two_brokers_replicate_with_rocketmqs_protocol(tmp_path: Path, connect: Connect) -> None:
    """The test replaces that with the Java broker on machines without Java."""
    plain = ("ha.compat=rocketmq", "delay.enable=false")
    with flintmq.Broker(master_settings(tmp_path / "m", *plain)) as master:
        wire = connect(master)
        fill_log(wire, 5, "before")
        with flintmq.Broker(slave_settings(tmp_path / "s", master, *plain)) as slave:
            caught_up(master, slave)
            fill_log(wire, 40, "beside")
            caught_up(master, slave)
        fill_log(wire, 40, "without")
        with flintmq.Broker(slave_settings(tmp_path / "s", master, *plain)) as slave:
            caught_up(master, slave)
        with flintmq.Broker(slave_settings(tmp_path / "late", master, *plain, broker_id=2)) as slave:
            caught_up(master, slave)
            assert slave.state.store.commit_log.min_offset_bytes > 0, "it is given the last file only"
    for store in ("s", "late"):
        assert_same_log(tmp_path / "m", tmp_path / store)
    assert_same_queues(tmp_path / "m", tmp_path / "s")


def test_replicated_messages_are_counted_in_the_put_statistics_of_the_slave(tmp_path: Path, connect: Connect) -> None:
    """Its putTps and totals are its master's traffic, as RocketMQ's slaves count it; what the start recovers is no traffic,
    and statistics of sends to topics (315) stay the master's."""
    with flintmq.Broker(master_settings(tmp_path / "m", "delay.enable=false")) as master:
        wire = connect(master)
        with flintmq.Broker(slave_settings(tmp_path / "s", master)) as slave:
            fill_log(wire, 30)
            caught_up(master, slave)
            put, copied = master.state.stats, slave.state.stats
            assert copied.put_messages == put.put_messages > 30
            assert copied.put_bytes == put.put_bytes
            figures = msgspec.json.decode(connect(slave).ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
            assert figures["putMessageTimesTotal"] == figures["msgPutTotalTodayNow"] == str(put.put_messages)
            assert float(figures["putTps"].split()[0]) > 0
            assert copied.table.view("TOPIC_PUT_NUMS", "T") is None
        with flintmq.Broker(slave_settings(tmp_path / "s", master)) as slave:
            caught_up(master, slave)
            assert slave.state.stats.put_messages == 0
            assert wire.send("T", b"one more").code == 0
            caught_up(master, slave)
            assert slave.state.stats.put_messages == 1


def test_replication_continues_after_a_restart_of_the_master_or_the_slave(tmp_path: Path, connect: Connect) -> None:
    """A restart of either end copies nothing twice and leaves nothing out."""
    with flintmq.Broker(master_settings(tmp_path / "m", "delay.enable=false")) as master:
        wire = connect(master)
        with flintmq.Broker(slave_settings(tmp_path / "s", master)) as slave:
            fill_log(wire, 30, "first")
            caught_up(master, slave)
        fill_log(wire, 30, "second")
        with flintmq.Broker(slave_settings(tmp_path / "s", master)) as slave:
            caught_up(master, slave)
        port = master.ha_port
    again = master_settings(tmp_path / "m", "delay.enable=false", f"listen.ha_port={port}")
    with (
        flintmq.Broker(slave_settings(tmp_path / "s", f"127.0.0.1:{port}")) as slave,
        flintmq.Broker(again) as master,
    ):
        fill_log(connect(master), 30, "third")
        caught_up(master, slave)
    assert_same_log(tmp_path / "m", tmp_path / "s")
    assert_same_queues(tmp_path / "m", tmp_path / "s")


def test_a_slave_serves_reads_and_refuses_writes(tmp_path: Path, connect: Connect) -> None:
    """Its log is a copy: a message of its own would make it another one. It is what there is to read without a master."""
    with flintmq.Broker(master_settings(tmp_path / "m")) as master:
        bodies = fill_log(connect(master), 20)
        with flintmq.Broker(slave_settings(tmp_path / "s", master)) as slave:
            caught_up(master, slave)
            eventually(lambda: slave.state.topics.select("T"), "the topic has come")
            wire = connect(slave)
            eventually(lambda: slave.state.has_master(), "the slave follows")
            refused = wire.send("T", b"no")
            assert (refused.code, "slave" in refused.remark) == (14, True)
            assert wire.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC).code == 1
            while_master = wire.pull("T", 0)
            assert (while_master.code, while_master.next_offset) == (20, 0), "nothing is skipped"
            master.__exit__(None, None, None)
            eventually(lambda: not slave.state.has_master(), "the master is gone")
            assert set(plain_bodies(wire)) >= set(bodies)


def test_a_master_reports_the_lag_of_its_slave_and_a_slave_reports_whether_replication_runs(
    tmp_path: Path, connect: Connect
) -> None:
    """An operator sees how far the slave is, and whether it follows at all."""

    def told(broker: flintmq.Broker) -> Any:
        answer = connect(broker).ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        return replication_of(msgspec.json.decode(answer.body)["table"])

    with flintmq.Broker(master_settings(tmp_path / "m")) as master:
        assert told(master) == {"role": "master", "slaves": 0, "held_offset": 0, "behind_bytes": None}
        master.put([flintmq.Message("Orders", b"1")])
        with flintmq.Broker(slave_settings(tmp_path / "s", master)) as slave:
            caught_up(master, slave)
            eventually(lambda: told(master)["behind_bytes"] == 0, "the master knows")
            assert told(master) == {"role": "master", "slaves": 1, "held_offset": end_of(slave), "behind_bytes": 0}
            assert told(slave) == {"role": "slave", "follows": True}
            master.__exit__(None, None, None)
            eventually(lambda: not told(slave)["follows"], "the slave knows")


def test_topics_and_groups_and_consumer_offsets_are_replicated_to_the_slave(tmp_path: Path, connect: Connect) -> None:
    """A slave that is promoted must know topics, groups and how far they have read."""
    with flintmq.Broker(master_settings(tmp_path / "m")) as master:
        wire = connect(master)
        fill_log(wire, 8)
        assert wire.pull("T", 0, group="Readers").code == 0
        commit = {"consumerGroup": "Readers", "topic": "T", "queueId": "0", "commitOffset": "2"}
        assert wire.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 0
        with flintmq.Broker(slave_settings(tmp_path / "s", master)) as slave:
            state = slave.state
            eventually(lambda: state.offsets.query("T", "Readers", 0) == 2, "offsets come")
            eventually(lambda: state.groups.find("Readers"), "groups come")
            eventually(lambda: state.topics.select("T"), "topics come")
            assert wire.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit | {"commitOffset": "5"}).code == 0
            eventually(lambda: state.offsets.query("T", "Readers", 0) == 5, "offsets come again")
            kept, delivered = (broker.state.service(DelayService).schedule for broker in (slave, master))
            eventually(lambda: kept.offset(1) == delivered.offset(1) > 0, "delay offsets come")
    for name in ("topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json"):
        assert (tmp_path / "s" / "config" / name).exists()


def test_a_sync_master_acknowledges_only_replicated_messages(tmp_path: Path, connect: Connect) -> None:
    """Without a slave it says so at once; with one an acknowledgement stands for two copies."""
    config = master_settings(tmp_path / "m", role="sync_master")
    with flintmq.Broker(config) as master:
        wire = connect(master)
        alone = wire.send("T", b"alone")
        assert alone.code == 11
        assert wire.send("T", b"no wait", properties={"WAIT": "false"}).code == 0
        assert wire.pull("T", 0).code == 19, "nobody reads what a slave does not hold"
        with flintmq.Broker(slave_settings(tmp_path / "s", master)) as slave:
            eventually(lambda: wire.pull("T", 0).code == 0, "it is readable once a slave holds it")
            for number in range(20):
                before = wire.send("T", b"%d" % number)
                assert before.code == 0
                assert end_of(slave) >= int(before.message_id[-16:], 16)
            caught_up(master, slave)
        eventually(lambda: wire.send("T", b"alone again").code == 11, "the slave is gone")
    assert wire.notices == []


@pytest.mark.parametrize(("compat", "code"), [("safe", 11), ("strict", 0)])
def test_a_sync_master_reports_a_missing_slave_if_a_consumer_sends_a_message_back(
    tmp_path: Path, connect: Connect, compat: str, code: int
) -> None:
    """A send-back and the end of a transaction are promised what a send is promised; RocketMQ's success is a setting."""
    with flintmq.Broker(master_settings(tmp_path / "m", f"store.compat={compat}", role="sync_master")) as master:
        wire = connect(master)
        group = fastjson.dumps({"groupName": "G", "retryQueueNums": 1, "retryMaxTimes": 16}).encode()
        assert wire.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group).code == 0
        half = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "A"}
        with flintmq.Broker(slave_settings(tmp_path / "s", master)) as slave:
            place = int(wire.send("T", b"x").message_id[16:], 16)
            sent = wire.send("T", b"half", properties=half)
            caught_up(master, slave)
        eventually(lambda: wire.send("T", b"alone").code == 11, "the slave is gone")
        back = {"offset": str(place), "group": "G", "delayLevel": "1", "originMsgId": "", "originTopic": "T"}
        assert wire.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == code
        end = {
            "producerGroup": "P",
            "tranStateTableOffset": sent.queue_offset,
            "commitLogOffset": int(sent.message_id[16:], 16),
            "commitOrRollback": 8,
            "fromTransactionCheck": "false",
            "msgId": "A",
        }
        answer = wire.ask(RequestCode.END_TRANSACTION, end)
        assert (answer.code, "ha.no_slave" in (answer.remark or "")) == (code, code == 11)


def test_a_promoted_slave_delivers_waiting_timer_messages_once(tmp_path: Path, connect: Connect) -> None:
    """Messages that the master delivered must not come again, because the positions follow the log."""
    with flintmq.Broker(master_settings(tmp_path / "m")) as master:
        wire = connect(master)
        for number in range(40):
            delay_ms = 50 if number % 2 else 60_000
            assert wire.send("T", b"%d" % number, properties={"TIMER_DELAY_MS": str(delay_ms)}).code == 0
        eventually(lambda: wire.pull("T").max_offset == 20, "half of them are delivered")
        with flintmq.Broker(slave_settings(tmp_path / "s", master)) as slave:
            caught_up(master, slave)
            timer, kept = master.state.service(TimerService).timers, slave.state.service(TimerService).positions
            eventually(lambda: kept.known == timer.positions(), "the positions come")
    # Its clock is a minute on, and it has no other node to ask.
    clock = ManualClock()
    clock.set_wall_clock(master.state.clock.now_ms() + 61_000)
    with flintmq.Broker(master_settings(tmp_path / "s"), clock=clock) as promoted:
        wire = connect(promoted)
        eventually(lambda: wire.pull("T").max_offset >= 40, "the others come")
        bodies = [int(record.body) for record in wire.pull_all("T")]
    assert sorted(bodies) == list(range(40))


def test_consumers_read_from_the_slave_when_the_master_is_gone(tmp_path: Path) -> None:
    """Slave, master and consumers find each other by the name server alone."""
    with flintmq.NameServer(load_config(None, ["nameserver.port=0"], {})) as namesrv:
        named = (f"namesrv.addresses={namesrv.address}", "namesrv.register_interval_ms=1000")
        slave_config = settings(tmp_path / "s", *QUICK, *named, "broker.role=slave", "broker.id=1")
        with flintmq.Broker(slave_config) as slave:
            with flintmq.Broker(master_settings(tmp_path / "m", *named)) as master:
                for number in range(20):
                    master.put([flintmq.Message("Orders", b"%d" % number)])
                caught_up(master, slave)
                eventually(lambda: slave.state.topics.select("Orders"), "the topic has come")
            assert set(asyncio.run(read_all(namesrv.address, "Orders"))) == {b"%d" % number for number in range(20)}


async def read_all(namesrv: str, topic: str) -> list[bytes]:
    found = []
    async with PullConsumer("Readers", [namesrv]) as consumer:
        for queue in await consumer.queues(topic):
            at = 0
            while messages := (result := await consumer.pull(queue, at)).messages:
                found += [message.body for message in messages]
                at = result.next_begin_queue_offset
    return found


def make_certificate(openssl: str, pem: Path) -> None:
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=flintmq"
    subprocess.run([openssl, *words.split(), "-keyout", f"{pem}.key", "-out", pem], check=True, capture_output=True)


def test_a_renewed_certificate_is_used_for_replication(tmp_path: Path, connect: Connect) -> None:
    """A slave that comes after the renewal and trusts the new one alone is served by a master that never stopped; one that
    follows already goes on, and finds the new one by itself when it has to connect again."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("makes certificates with openssl, which is not installed")
    pem, new = tmp_path / "one.pem", tmp_path / "new.pem"
    make_certificate(openssl, pem)
    make_certificate(openssl, new)
    tls = (f"listen.tls.certificate={pem}", f"listen.tls.key={pem}.key", "listen.tls.mode=permissive", "ha.tls=true")
    of_new = (f"listen.tls.certificate={new}", f"listen.tls.key={new}.key", "listen.tls.mode=permissive", "ha.tls=true")
    with flintmq.Broker(master_settings(tmp_path / "m", *tls)) as master:
        fill_log(connect(master), 3)
        with flintmq.Broker(slave_settings(tmp_path / "s", master, *tls)) as slave:
            caught_up(master, slave)
            shutil.copy(new, pem)
            shutil.copy(f"{new}.key", f"{pem}.key")

            async def renew() -> None:
                master.timers.run_now("certificate of replication")

            master.call(renew)
            with flintmq.Broker(slave_settings(tmp_path / "n", master, *of_new, broker_id=2)) as late:
                fill_log(connect(master), 3)
                caught_up(master, late)
                caught_up(master, slave)
            follower = slave.state.service(ReplicationService).end.slave
            of_master = master.state.service(ReplicationService).end.master
            assert follower.connects == 1

            async def cut() -> None:
                for connection in list(of_master.connections):
                    connection.close("a test")

            master.call(cut)
            eventually(lambda: follower.connects == 2, "it connects again")
            fill_log(connect(master), 3)
            caught_up(master, slave)


def test_replication_is_encrypted_if_configured(tmp_path: Path, connect: Connect, tmp_path_factory: Any) -> None:
    """Whoever listens between the machines sees nothing, and a slave in clear gets nothing."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("makes certificates with openssl, which is not installed")
    pem = tmp_path / "one.pem"
    make_certificate(openssl, pem)
    tls = (f"listen.tls.certificate={pem}", f"listen.tls.key={pem}.key", "listen.tls.mode=permissive")
    with flintmq.Broker(master_settings(tmp_path / "m", *tls, "ha.tls=true")) as master:
        fill_log(connect(master), 10)
        with flintmq.Broker(slave_settings(tmp_path / "s", master, *tls, "ha.tls=true")) as slave:
            caught_up(master, slave)
        with flintmq.Broker(slave_settings(tmp_path / "c", master)) as clear:
            refused = clear.state.service(ReplicationService).end.slave
            eventually(lambda: refused.connects > 1, "it is turned away, and tries again")
            assert end_of(clear) == 0


def test_a_wrong_replication_secret_is_logged_by_the_master_and_the_slave(
    tmp_path: Path, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """Both logs say what to look at; nothing is replicated."""
    with flintmq.Broker(master_settings(tmp_path / "m")) as master:
        fill_log(connect(master), 3)
        other = [value for value in QUICK if not value.startswith("ha.secret=")]
        address = f"ha.master_address=127.0.0.1:{master.ha_port}"
        config = settings(
            tmp_path / "s", *other, "ha.secret=another one of sixteen", address, "broker.role=slave", "broker.id=1"
        )
        with flintmq.Broker(config) as slave:
            eventually(lambda: "does not know the secret" in caplog.text, "the reason is told")
            assert end_of(slave) == 0


def test_a_master_with_access_control_sends_its_topic_table_only_to_a_slave_that_signs_its_requests(
    tmp_path: Path,
) -> None:
    """A slave signs what it asks its master, with the account it registers with; without one it is refused."""
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts:\n- {accessKey: the-admin, secretKey: secret-of-admin, admin: true}\n")
    file.chmod(0o600)
    acl = ("acl.enable=true", f"acl.file={file}")
    signed = ("namesrv.access_key=the-admin", "namesrv.secret_key=secret-of-admin")
    with flintmq.Broker(master_settings(tmp_path / "m", *acl)) as master:
        master.put([flintmq.Message("Orders", b"1")])

        async def create() -> None:
            master.state.topics.put(TopicConfig(topic_name="Empty", read_queue_nums=3, write_queue_nums=3))

        master.call(create)
        with flintmq.Broker(slave_settings(tmp_path / "s", master, *acl, *signed)) as slave:
            eventually(lambda: slave.state.topics.select("Orders"), "topics come")
            caught_up(master, slave)
        with flintmq.Broker(slave_settings(tmp_path / "u", master, *acl, broker_id=2)) as unsigned:
            caught_up(master, unsigned)
            eventually(lambda: unsigned.state.topics.select("Orders"), "a topic is learned from its messages")
            assert unsigned.state.topics.select("Empty") is None


def test_a_slave_requests_the_configuration_of_a_topic_when_a_message_of_a_new_topic_arrives(
    tmp_path: Path, connect: Connect
) -> None:
    """The tables are asked for once an hour here: the master's row comes because there is news, and a message can be read of
    a slave that was promoted without ever having been told."""
    hourly = "ha.sync_interval_ms=3600000"
    with flintmq.Broker(master_settings(tmp_path / "m")) as master:
        with flintmq.Broker(slave_settings(tmp_path / "s", master, hourly)) as slave:
            caught_up(master, slave)
            synchronize = slave.state.service(ReplicationService).end.synchronize
            eventually(lambda: synchronize.rounds, "the tables were taken over")
            connect(master).send("Orders", b"1", queue_id=3)
            wanted = master.state.topics.select("Orders")
            eventually(lambda: slave.state.topics.select("Orders") == wanted, "the master's row comes")
        acl = tmp_path / "plain_acl.yml"
        acl.write_text("accounts:\n- {accessKey: the-admin, secretKey: secret-of-admin, admin: true}\n")
    closed = ("acl.enable=true", f"acl.file={acl}")
    acl.chmod(0o600)
    with flintmq.Broker(master_settings(tmp_path / "c", *closed)) as master:
        master.put([flintmq.Message("Orders", b"untold")])
        queue_id = int(next(path.name for path in (tmp_path / "c" / "consumequeue" / "Orders").iterdir()))
        with flintmq.Broker(slave_settings(tmp_path / "t", master)) as untold:
            caught_up(master, untold)
    with flintmq.Broker(master_settings(tmp_path / "t")) as promoted:
        found = promoted.state.topics.select("Orders")
        assert found == TopicConfig(topic_name="Orders", read_queue_nums=queue_id + 1, write_queue_nums=queue_id + 1)
        assert [record.body for record in connect(promoted).pull_all("Orders", queue_id=queue_id)] == [b"untold"]
