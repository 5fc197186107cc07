"""``topics create`` and ``groups create`` change what is given and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.remoting.client.admin import AdminClient

from .conftest import RunCommand

Ask = Callable[[Callable[[AdminClient], Awaitable[Any]]], Any]


@pytest.fixture
def ask(name_server: str) -> Ask:
    """Does work with an administration client."""

    def run(work: Callable[[AdminClient], Awaitable[Any]]) -> Any:
        async def with_admin() -> Any:
            async with AdminClient(name_server) as admin:
                return await work(admin)

        return asyncio.run(with_admin())

    return run


async def topic_of(admin: AdminClient, topic: str) -> TopicConfig | None:
    (address,) = (await admin.masters()).values()
    return await admin.topic_config(topic, address)


async def group_of(admin: AdminClient, group: str) -> SubscriptionGroupConfig | None:
    (address,) = (await admin.masters()).values()
    return await admin.group_config(group, address)


def test_changing_the_permission_of_a_topic_keeps_its_number_of_queues(
    cli: RunCommand, name_server: str, ask: Ask
) -> None:
    """Sixteen ordered queues stay that: a change of the permission must hide no message."""
    where = ("-n", name_server)
    assert cli("topics", "create", "Wide", "--queues", 16, "--order", *where).code == 0
    assert cli("send", "Wide", "x", "--queue", 12, *where).code == 0
    changed = cli("topics", "create", "Wide", "--permission", "r", *where)
    assert (changed.code, changed.out) == (0, "topic Wide has 16 queues at each broker; permission r, ordered\n")
    assert ask(lambda admin: topic_of(admin, "Wide")) == TopicConfig(
        topic_name="Wide", read_queue_nums=16, write_queue_nums=16, perm=4, order=True
    )
    told = cli("topics", "create", "Wide", "--no-order", *where, "--json").json
    assert told == {"topic": "Wide", "queues": 16, "permission": "r", "order": False, "broker": None}
    assert cli("topics", "create", "Wide", "--queues", 17, *where).code == 0
    config = ask(lambda admin: topic_of(admin, "Wide"))
    assert (config.read_queue_nums, config.perm, config.order) == (17, 4, False)
    assert cli("topics", "show", "Wide", *where, "--json").json["messages"] == 1


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ((), {}),
        (("--queues", 6), {"read_queue_nums": 6, "write_queue_nums": 6}),
        (("--permission", "w"), {"perm": 3}),
        (("--no-order",), {"order": False}),
        (("--queues", 6, "--permission", "rw"), {"read_queue_nums": 6, "write_queue_nums": 6, "perm": 7}),
    ],
)
def test_each_option_of_the_topics_commands_changes_only_its_own_field(
    cli: RunCommand, name_server: str, ask: Ask, given: tuple[Any, ...], changed: dict[str, Any]
) -> None:
    """Also what no option names is kept: a unit's flag, fewer write queues than read ones, a template's bit."""
    before = TopicConfig(
        topic_name="Kept",
        read_queue_nums=5,
        write_queue_nums=3,
        perm=5,
        order=True,
        topic_sys_flag=1,
        topic_filter_type="MULTI_TAG",
    )

    async def make(admin: AdminClient) -> None:
        await admin.create_topic(
            "Kept", queues=5, write_queues=3, perm=5, order=True, topic_sys_flag=1, topic_filter_type="MULTI_TAG"
        )

    ask(make)
    assert cli("topics", "create", "Kept", *given, "-n", name_server).code == 0
    fields = {name: getattr(before, name) for name in before.__struct_fields__} | changed
    assert ask(lambda admin: topic_of(admin, "Kept")) == TopicConfig(**fields)


def test_changing_a_topic_with_the_admin_client_keeps_topic_fields_that_are_not_given(ask: Ask) -> None:
    """``AdminClient.create_topic`` is what consoles and programs change topics with."""

    async def work(admin: AdminClient) -> Any:
        await admin.create_topic("ByClient", queues=3, order=True)
        await admin.create_topic("ByClient", perm=4)
        kept = await topic_of(admin, "ByClient")
        await admin.create_topic("ByClient", write_queues=1)
        narrower = await topic_of(admin, "ByClient")
        await admin.create_topic("Fresh")
        return kept, narrower, await topic_of(admin, "Fresh"), await topic_of(admin, "Never")

    kept, narrower, fresh, never = ask(work)
    assert (kept.read_queue_nums, kept.write_queue_nums, kept.perm, kept.order) == (3, 3, 4, True)
    assert (narrower.read_queue_nums, narrower.write_queue_nums, narrower.perm) == (3, 1, 4)
    assert (fresh.read_queue_nums, fresh.write_queue_nums, fresh.perm, fresh.order) == (4, 4, 6, False)
    assert never is None


def test_topics_created_by_a_command_or_by_the_first_send_have_the_same_number_of_queues(
    cli: RunCommand, name_server: str, ask: Ask
) -> None:
    """``topics create`` once made 8 queues where sending makes 4: chance decided how many consumers a topic takes."""
    where = ("-n", name_server)
    assert cli("topics", "create", "ByHand", *where).code == 0
    assert cli("send", "BySending", "x", *where).code == 0
    by_hand, by_sending = ask(lambda admin: topic_of(admin, "ByHand")), ask(lambda admin: topic_of(admin, "BySending"))
    assert by_hand.read_queue_nums == by_hand.write_queue_nums == by_sending.read_queue_nums == 4


def test_changing_the_retry_limit_of_a_group_keeps_the_other_fields_of_the_group(
    cli: RunCommand, name_server: str, ask: Ask
) -> None:
    """A group whose consuming is off stays off, however often its retries are changed."""
    before = SubscriptionGroupConfig(
        group_name="Off",
        consume_enable=False,
        consume_broadcast_enable=False,
        consume_from_min_enable=False,
        retry_queue_nums=4,
        retry_max_times=5,
        broker_id=1,
        which_broker_when_consume_slowly=2,
        notify_consumer_ids_changed_enable=False,
    )
    ask(lambda admin: admin.create_group(before))
    where = ("-n", name_server)
    again = cli("groups", "create", "Off", *where, "--json")
    assert (again.code, again.json) == (0, {"group": "Off", "retries": 5})
    assert ask(lambda admin: group_of(admin, "Off")) == before
    changed = cli("groups", "create", "Off", "--retries", 3, *where)
    assert changed.code == 0
    fields = {name: getattr(before, name) for name in before.__struct_fields__} | {"retry_max_times": 3}
    assert ask(lambda admin: group_of(admin, "Off")) == SubscriptionGroupConfig(**fields)
    assert cli("groups", "create", "New", *where, "--json").json == {"group": "New", "retries": 16}


def test_the_help_of_the_create_commands_shows_the_default_values(cli: RunCommand) -> None:
    """A reader sees what an option is when it is not given: for what is new, and for what is there."""
    for command, words in (
        ("topics", ("unchanged", "8", "rw")),
        ("groups", ("unchanged", "16")),
    ):
        text = " ".join(cli(command, "create", "--help").out.split())
        assert all(word in text for word in words), text
