"""Creates, changes and deletes topics and groups. Each is shown first, for every broker, and confirmed then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
from msgspec.structs import replace
from starlette.responses import Response

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.perm import INHERIT, READ, READ_WRITE, WRITE
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.errors import FlintError, RemotingError
from flintmq.programs.cluster_view.names import kind_of_group, kind_of_topic
from flintmq.programs.console.web import FormError, Visitor, page, to
from flintmq.remoting.client.route import NEW_TOPIC_QUEUES

NAME_MAX_CHARS: Final = 255
QUEUES_MAX: Final = 1024
RETRIES_MAX: Final = 1000
PERMISSIONS: Final = {"rw": READ_WRITE, "r": READ, "w": WRITE}
"""What clients may do with a topic → the protocol's bits."""


@attrs.frozen
class Change:
    """What would be different at a broker."""

    broker: str
    setting: str
    now: str
    then: str


def permission_text(bits: int) -> str:
    """Return what bits let clients do, as forms have it: ``rw``, ``r`` or ``w``."""
    return next((name for name, known in PERMISSIONS.items() if bits & READ_WRITE == known), "none")


async def topic_form(visitor: Visitor) -> Response:
    """Ask how a topic is to be: a new one, or one that is there."""
    name = visitor.query("name")
    had = await _topic_configs(visitor, name) if name else {}
    known = next((config for config in had.values() if config is not None), None)
    if name and known is None:
        raise FormError(f"No broker has a topic {name[:200]}.", 404)
    config = known or TopicConfig.with_queues("", NEW_TOPIC_QUEUES)
    return visitor.render(
        "topic_form.html", name=name, config=config, permission=permission_text(config.perm), queues_max=QUEUES_MAX
    )


async def topic_preview(visitor: Visitor) -> Response:
    """Show what would be different at each broker if a topic were made, or changed, so."""
    name, wanted = _topic_name(visitor.query("name")), _topic_wish(visitor, visitor.query)
    had = await _topic_configs(visitor, name)
    changes: list[Change] = []
    for broker, config in had.items():
        if config is not None and config.read_queue_nums > wanted["queues"]:
            raise FormError(
                f"{name} has {config.read_queue_nums} queues at {broker}, and messages may wait in those that would go. "
                f"flintmq topics create {name} --queues {wanted['queues']} takes them away once they are consumed."
            )
        before = {} if config is None else _topic_settings(config)
        then = {"queues": str(wanted["queues"]), "permissions": wanted["perm"], "order": wanted["order"]}
        changes += [
            Change(broker, key, before.get(key, "–"), text) for key, text in then.items() if before.get(key) != text
        ]
    is_new = not any(had.values())
    return _preview(
        visitor,
        changes,
        title=f"Create topic {name}?" if is_new else f"Change topic {name}?",
        button="Create the topic" if is_new else "Change the topic",
        path="/topic/change/now",
        back=to("/topics") if is_new else to("/topic", name=name),
        fields={"name": name, **wanted},
    )


async def change_topic(visitor: Visitor) -> Response:
    """Make or change a topic at every broker."""
    name, wanted = _topic_name(visitor.field("name")), _topic_wish(visitor, visitor.field)
    had = await _topic_configs(visitor, name)

    async def change() -> None:
        masters = await visitor.access.admin.masters()
        for broker, config in had.items():
            inherited = config.perm & INHERIT if config is not None else 0
            await visitor.access.admin.create_topic(
                name,
                queues=wanted["queues"],
                perm=PERMISSIONS[wanted["perm"]] | inherited,
                order=wanted["order"] == "on",
                address=masters[broker],
            )

    text = f"{wanted['queues']} queues at each broker, permissions {wanted['perm']}, order {wanted['order']}"
    action = "change topic" if any(had.values()) else "create topic"
    await _audited(visitor, action, name, text, change)
    return visitor.render("done.html", what="Done", text=f"Topic {name} has {text}.", back=to("/topic", name=name))


async def topic_deletion(visitor: Visitor) -> Response:
    """Show what would be lost with a topic."""
    name = visitor.query("name")
    found = await visitor.view.topic(name)
    if found is None:
        raise FormError(f"No broker has a topic {name[:200]}.", 404)
    _refuse_of_system(found.kind == "system", f"The topic {name}")
    lost = [f"{found.messages or 0:,} messages would be gone, at every broker, and nobody could get them back."]
    if found.groups:
        lost.append(f"{_counted(len(found.groups), 'group')} read it: {', '.join(found.groups[:50])}.")
    if found.missing:
        lost.append(f"{', '.join(found.missing)} would keep it: no answer comes from there now.")
    return visitor.render(
        "deletion.html",
        what=f"topic {name}",
        lost=lost,
        action="/topic/delete/now",
        back=to("/topic", name=name),
        confirm=visitor.confirmation("/topic/delete/now", name=name),
    )


async def delete_topic(visitor: Visitor) -> Response:
    """Delete a topic at every broker and name server."""
    name = visitor.field("name")
    _refuse_of_system(kind_of_topic(name) == "system", f"The topic {name}")
    await _audited(visitor, "delete topic", name, "gone", lambda: visitor.access.admin.delete_topic(name))
    return visitor.render("done.html", what="Deleted", text=f"Topic {name} is deleted.", back=to("/topics"))


async def group_form(visitor: Visitor) -> Response:
    """Ask how a group is to be: a new one, or one that is there."""
    name = visitor.query("name")
    had = await _group_configs(visitor, name) if name else {}
    known = next((config for config in had.values() if config is not None), None)
    return visitor.render("group_form.html", name=name, config=known or SubscriptionGroupConfig())


async def group_preview(visitor: Visitor) -> Response:
    """Show what would be different at each broker if a group were made, or changed, so."""
    name, wanted = _group_name(visitor.query("name")), _group_wish(visitor, visitor.query)
    had = await _group_configs(visitor, name)
    changes: list[Change] = []
    for broker, config in had.items():
        before = {} if config is None else _group_settings(config)
        then = _group_settings(_wanted_group(SubscriptionGroupConfig(), wanted))
        changes += [
            Change(broker, key, before.get(key, "–"), text) for key, text in then.items() if before.get(key) != text
        ]
    is_new = not any(had.values())
    return _preview(
        visitor,
        changes,
        title=f"Create group {name}?" if is_new else f"Change group {name}?",
        button="Create the group" if is_new else "Change the group",
        path="/group/change/now",
        back=to("/groups") if is_new else to("/group", name=name),
        fields={"name": name, **wanted},
    )


async def change_group(visitor: Visitor) -> Response:
    """Make or change a group at every broker; settings that the form does not have stay."""
    name, wanted = _group_name(visitor.field("name")), _group_wish(visitor, visitor.field)
    had = await _group_configs(visitor, name)

    async def change() -> None:
        masters = await visitor.access.admin.masters()
        for broker, config in had.items():
            new = _wanted_group(config or SubscriptionGroupConfig(group_name=name), wanted)
            await visitor.access.admin.create_group(new, address=masters[broker])

    text = f"retries {wanted['retries']}, consuming {wanted['consume']}, broadcasting {wanted['broadcast']}"
    action = "change group" if any(had.values()) else "create group"
    await _audited(visitor, action, name, text, change)
    return visitor.render("done.html", what="Done", text=f"Group {name}: {text}.", back=to("/group", name=name))


async def group_deletion(visitor: Visitor) -> Response:
    """Show what would be lost with a group."""
    name = visitor.query("name")
    found = await visitor.view.group(name)
    if found is None:
        raise FormError(f"No broker has a consumer group {name[:200]}.", 404)
    _refuse_of_system(found.kind == "system", f"The group {name}")
    lost = ["How far it has come, its retries and its dead letters would be forgotten."]
    if found.lag:
        lost.append(f"{found.lag:,} messages wait for it.")
    if found.members:
        lost.append(
            f"{_counted(found.members, 'member')} online would go on, and may make the group again: stop them first."
        )
    return visitor.render(
        "deletion.html",
        what=f"group {name}",
        lost=lost,
        action="/group/delete/now",
        back=to("/group", name=name),
        confirm=visitor.confirmation("/group/delete/now", name=name),
    )


async def delete_group(visitor: Visitor) -> Response:
    """Delete a group with how far it has come, its retries and its dead letters."""
    name = visitor.field("name")
    _refuse_of_system(kind_of_group(name) == "system", f"The group {name}")
    await _audited(
        visitor, "delete group", name, "gone", lambda: visitor.access.admin.delete_group(name, remove_offset=True)
    )
    return visitor.render("done.html", what="Deleted", text=f"Group {name} is deleted.", back=to("/groups"))


# --- what they share ---


def _preview(
    visitor: Visitor,
    changes: Sequence[Change],
    *,
    title: str,
    button: str,
    path: str,
    back: str,
    fields: dict[str, Any],
) -> Response:
    if not changes:
        raise FormError("It is so already at every broker: nothing would change.")
    return visitor.render(
        "change.html",
        title=title,
        button=button,
        action=path,
        back=back,
        changes=changes,
        confirm=visitor.confirmation(path, **fields),
    )


async def _audited(visitor: Visitor, action: str, subject: str, result: str, work: Callable[[], Any]) -> None:
    """Do it, and note what became of it, also where a broker refused."""
    try:
        await work()
    except FlintError as error:
        visitor.audit(action, subject, f"failed: {error}")
        raise
    visitor.audit(action, subject, f"done: {result}")
    await visitor.view.refresh(all_due=True)


async def _masters(visitor: Visitor) -> dict[str, str]:
    masters = await visitor.access.admin.masters()
    if not masters:
        raise RemotingError("no master is registered with the name server")
    return masters


async def _topic_configs(visitor: Visitor, name: str) -> dict[str, TopicConfig | None]:
    admin = visitor.access.admin
    return {broker: await admin.topic_config(name, where) for broker, where in (await _masters(visitor)).items()}


async def _group_configs(visitor: Visitor, name: str) -> dict[str, SubscriptionGroupConfig | None]:
    admin = visitor.access.admin
    return {broker: await admin.group_config(name, where) for broker, where in (await _masters(visitor)).items()}


def _topic_settings(config: TopicConfig) -> dict[str, str]:
    return {
        "queues": str(config.read_queue_nums),
        "permissions": permission_text(config.perm),
        "order": "on" if config.order else "off",
    }


def _topic_wish(visitor: Visitor, value: Callable[[str], str]) -> dict[str, Any]:
    """Return what a form asks of a topic. Raises :class:`FormError`."""
    perm = value("perm")
    if perm not in PERMISSIONS:
        raise FormError(f"Permissions are one of {', '.join(PERMISSIONS)}, not '{perm[:40]}'.")
    queues = visitor.number("The number of queues", value("queues"), 1, QUEUES_MAX)
    return {"queues": queues, "perm": perm, "order": "on" if value("order") == "on" else "off"}


def _group_settings(config: SubscriptionGroupConfig) -> dict[str, str]:
    return {
        "retries": str(config.retry_max_times),
        "consuming": "on" if config.consume_enable else "off",
        "broadcasting": "on" if config.consume_broadcast_enable else "off",
    }


def _group_wish(visitor: Visitor, value: Callable[[str], str]) -> dict[str, Any]:
    """Return what a form asks of a group. Raises :class:`FormError`."""
    return {
        "retries": visitor.number("The number of retries", value("retries"), 0, RETRIES_MAX),
        "consume": "on" if value("consume") == "on" else "off",
        "broadcast": "on" if value("broadcast") == "on" else "off",
    }


def _wanted_group(config: SubscriptionGroupConfig, wanted: dict[str, Any]) -> SubscriptionGroupConfig:
    return replace(
        config,
        retry_max_times=wanted["retries"],
        consume_enable=wanted["consume"] == "on",
        consume_broadcast_enable=wanted["broadcast"] == "on",
    )


def _topic_name(text: str) -> str:
    _refuse_of_system(bool(text) and kind_of_topic(text) == "system", f"The topic {text}")
    return _checked_name(text, "topic")


def _group_name(text: str) -> str:
    _refuse_of_system(bool(text) and kind_of_group(text) == "system", f"The group {text}")
    return _checked_name(text, "group")


def _checked_name(text: str, what: str) -> str:
    if not text or len(text) > NAME_MAX_CHARS or not text.isprintable():
        raise FormError(f"Give the {what} a name of at most {NAME_MAX_CHARS} characters.")
    return text


def _refuse_of_system(is_one: bool, subject: str) -> None:
    if is_one:
        raise FormError(f"{subject[:200]} is the system's own: brokers need it as it is.")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


ROUTES: Final = (
    page("/topic/change", topic_form),
    page("/topic/change/preview", topic_preview),
    page("/topic/change/now", change_topic, changes=True, confirmed=True),
    page("/topic/delete", topic_deletion),
    page("/topic/delete/now", delete_topic, changes=True, confirmed=True),
    page("/group/change", group_form),
    page("/group/change/preview", group_preview),
    page("/group/change/now", change_group, changes=True, confirmed=True),
    page("/group/delete", group_deletion),
    page("/group/delete/now", delete_group, changes=True, confirmed=True),
)
