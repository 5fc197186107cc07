"""Pages to create, change and delete topics and groups. Each shows a preview for every broker and asks for confirmation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

import attrs
from msgspec.structs import replace
from starlette.responses import Response

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.perm import INHERIT, READ, READ_WRITE, WRITE
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.errors import FlintError, RemotingError
from flintmq.programs.cluster_view.names import kind_of_group, kind_of_topic
from flintmq.programs.console.web import FormError, Visitor, page, to
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.route import NEW_TOPIC_QUEUES

Config = TypeVar("Config")

NAME_MAX_CHARS: Final = 255
QUEUES_MAX: Final = 1024
RETRIES_MAX: Final = 1000
PERMISSIONS: Final = {"rw": READ_WRITE, "r": READ, "w": WRITE}
"""The protocol's permission bits, keyed by the value in the form for a topic."""


@attrs.frozen
class Change:
    """The change of one setting of a topic or group at one broker."""

    broker: str
    setting: str
    now: str
    then: str


@attrs.frozen(kw_only=True)
class Managed(Generic[Config]):
    """The texts and functions with which the pages create and change topics or groups. One object serves topics, and another
    serves groups."""

    noun: str
    words: str
    """Format string that describes a topic's or group's settings in words. The names in braces are keys of the settings that a
    user entered in a form, as the function :attr:`wish` returns them."""
    done: str
    """The text of the page after a topic or group was changed: a format string with ``{name}``, and ``{text}`` for the
    settings."""
    kind_of: Callable[[str], str]
    """Function that returns the kind of a topic's or group's name, such as ``system``."""
    wish: Callable[[Visitor, Callable[[str], str]], dict[str, Any]]
    """Function that returns the settings that a user entered in a form. Raises FormError if a setting is not valid."""
    then: Callable[[dict[str, Any]], dict[str, str]]
    """Function that converts the settings that a user entered in a form to texts, keyed by setting. The function
    :attr:`settings` returns the current settings with the same keys, so that the page can compare the new settings with the
    current settings."""
    settings: Callable[[Config], dict[str, str]]
    """Function that returns, in words, those settings of a topic's or group's configuration that the form contains."""
    refuse: Callable[[str, str, Config, dict[str, Any]], None]
    """Function that raises FormError if a change of a topic or group would lose messages. Its arguments are the name, the
    broker, the current configuration and the settings from the form."""
    read: Callable[[AdminClient, str, str], Awaitable[Config | None]]
    """Function that returns the configuration of a topic or group, given its name and a broker's address; None if the broker
    lacks it."""
    put: Callable[[AdminClient, str, dict[str, Any], Config | None, str], Awaitable[None]]
    """Function that sends the settings from a form to a broker, combined with the topic's or group's current configuration at
    that broker."""

    async def configs(self, visitor: Visitor, name: str) -> dict[str, Config | None]:
        """Return the configuration of a topic or group at each broker; None for a broker without it. Raises RemotingError."""
        masters = await visitor.access.admin.masters()
        if not masters:
            raise RemotingError("no master is registered with the name server")
        return {broker: await self.read(visitor.access.admin, name, where) for broker, where in masters.items()}

    def checked(self, name: str) -> str:
        """Return the name of a topic or group after checking that it may be created or changed. Raises FormError."""
        _refuse_of_system(bool(name) and self.kind_of(name) == "system", f"The {self.noun} {name}")
        if not name or len(name) > NAME_MAX_CHARS or not name.isprintable():
            raise FormError(f"Give the {self.noun} a name of at most {NAME_MAX_CHARS} characters.")
        return name


def permission_text(bits: int) -> str:
    """Return permission bits as in forms: ``rw``, ``r`` or ``w``."""
    return next((name for name, known in PERMISSIONS.items() if bits & READ_WRITE == known), "none")


async def topic_form(visitor: Visitor) -> Response:
    """Show the form for a new topic, or for the settings of an existing one."""
    name = visitor.query("name")
    had = await TOPIC.configs(visitor, name) if name else {}
    known = next((config for config in had.values() if config is not None), None)
    if name and known is None:
        raise FormError(f"No broker has a topic {name[:200]}.", 404)
    config = known or TopicConfig.with_queues("", NEW_TOPIC_QUEUES)
    return visitor.render(
        "topic_form.html", name=name, config=config, permission=permission_text(config.perm), queues_max=QUEUES_MAX
    )


async def topic_deletion(visitor: Visitor) -> Response:
    """Show the consequences of deleting a topic, and ask for confirmation."""
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
    """Show the form for a new group, or for the settings of an existing one."""
    name = visitor.query("name")
    had = await GROUP.configs(visitor, name) if name else {}
    known = next((config for config in had.values() if config is not None), None)
    return visitor.render("group_form.html", name=name, config=known or SubscriptionGroupConfig())


async def group_deletion(visitor: Visitor) -> Response:
    """Show the consequences of deleting a group, and ask for confirmation."""
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
    """Delete a group with its offsets, its retries and its dead letters."""
    name = visitor.field("name")
    _refuse_of_system(kind_of_group(name) == "system", f"The group {name}")
    await _audited(
        visitor, "delete group", name, "gone", lambda: visitor.access.admin.delete_group(name, remove_offset=True)
    )
    return visitor.render("done.html", what="Deleted", text=f"Group {name} is deleted.", back=to("/groups"))


# --- functions for the pages of topics and of groups ---


async def _preview(kind: Managed[Config], visitor: Visitor) -> Response:
    """Show the changes of a topic or group at each broker, and ask for confirmation."""
    name, wanted = kind.checked(visitor.query("name")), kind.wish(visitor, visitor.query)
    had = await kind.configs(visitor, name)
    then = kind.then(wanted)
    changes: list[Change] = []
    for broker, config in had.items():
        if config is not None:
            kind.refuse(name, broker, config, wanted)
        before = {} if config is None else kind.settings(config)
        changes += [
            Change(broker, key, before.get(key, "–"), text) for key, text in then.items() if before.get(key) != text
        ]
    if not changes:
        raise FormError("Every broker has these settings already: nothing would change.")
    is_new = not any(had.values())
    verb = "Create" if is_new else "Change"
    path = f"/{kind.noun}/change/now"
    return visitor.render(
        "change.html",
        title=f"{verb} {kind.noun} {name}?",
        button=f"{verb} the {kind.noun}",
        action=path,
        back=to(f"/{kind.noun}s") if is_new else to(f"/{kind.noun}", name=name),
        changes=changes,
        confirm=visitor.confirmation(path, name=name, **wanted),
    )


async def _change(kind: Managed[Config], visitor: Visitor) -> Response:
    """Create or change a topic or a group at every broker. Settings that are not in the form stay unchanged."""
    name, wanted = kind.checked(visitor.field("name")), kind.wish(visitor, visitor.field)
    had = await kind.configs(visitor, name)

    async def change() -> None:
        admin = visitor.access.admin
        masters = await admin.masters()
        for broker, config in had.items():
            await kind.put(admin, name, wanted, config, masters[broker])

    text = kind.words.format_map(wanted)
    await _audited(visitor, f"{'change' if any(had.values()) else 'create'} {kind.noun}", name, text, change)
    return visitor.render(
        "done.html", what="Done", text=kind.done.format(name=name, text=text), back=to(f"/{kind.noun}", name=name)
    )


async def _audited(visitor: Visitor, action: str, subject: str, result: str, work: Callable[[], Any]) -> None:
    """Run a change of a topic or group and record the result, also if a broker refuses the change."""
    try:
        await work()
    except FlintError as error:
        visitor.audit(action, subject, f"failed: {error}")
        raise
    visitor.audit(action, subject, f"done: {result}")
    await visitor.view.refresh(all_due=True)


def _topic_settings(config: TopicConfig) -> dict[str, str]:
    return {
        "queues": str(config.read_queue_nums),
        "permissions": permission_text(config.perm),
        "order": "on" if config.order else "off",
    }


def _topic_wish(visitor: Visitor, value: Callable[[str], str]) -> dict[str, Any]:
    """Return the settings of a topic in a form. Raises FormError."""
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
    """Return the settings of a group in a form. Raises FormError."""
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


def _refuse_of_system(is_one: bool, subject: str) -> None:
    if is_one:
        raise FormError(f"{subject[:200]} belongs to the system, and brokers need it unchanged.")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _keep_queues(name: str, broker: str, config: TopicConfig, wanted: dict[str, Any]) -> None:
    if config.read_queue_nums > wanted["queues"]:
        raise FormError(
            f"{name} has {config.read_queue_nums} queues at {broker}, and messages may wait in the surplus queues. "
            f"To remove these queues after their messages are consumed, run flintmq topics create {name} --queues "
            f"{wanted['queues']}."
        )


async def _put_topic(
    admin: AdminClient, name: str, wanted: dict[str, Any], config: TopicConfig | None, address: str
) -> None:
    inherited = config.perm & INHERIT if config is not None else 0
    perm = PERMISSIONS[wanted["perm"]] | inherited
    await admin.create_topic(name, queues=wanted["queues"], perm=perm, order=wanted["order"] == "on", address=address)


async def _put_group(
    admin: AdminClient, name: str, wanted: dict[str, Any], config: SubscriptionGroupConfig | None, address: str
) -> None:
    new = _wanted_group(config or SubscriptionGroupConfig(group_name=name), wanted)
    await admin.create_group(new, address=address)


TOPIC: Final = Managed[TopicConfig](
    noun="topic",
    words="{queues} queues at each broker, permissions {perm}, order {order}",
    done="Topic {name} has {text}.",
    kind_of=kind_of_topic,
    wish=_topic_wish,
    then=lambda wanted: {"queues": str(wanted["queues"]), "permissions": wanted["perm"], "order": wanted["order"]},
    settings=_topic_settings,
    refuse=_keep_queues,
    read=AdminClient.topic_config,
    put=_put_topic,
)
GROUP: Final = Managed[SubscriptionGroupConfig](
    noun="group",
    words="retries {retries}, consuming {consume}, broadcasting {broadcast}",
    done="Group {name}: {text}.",
    kind_of=kind_of_group,
    wish=_group_wish,
    then=lambda wanted: _group_settings(_wanted_group(SubscriptionGroupConfig(), wanted)),
    settings=_group_settings,
    refuse=lambda _name, _broker, _config, _wanted: None,
    read=AdminClient.group_config,
    put=_put_group,
)

ROUTES: Final = (
    page("/topic/change", topic_form),
    page("/topic/change/preview", partial(_preview, TOPIC)),
    page("/topic/change/now", partial(_change, TOPIC), changes=True, confirmed=True),
    page("/topic/delete", topic_deletion),
    page("/topic/delete/now", delete_topic, changes=True, confirmed=True),
    page("/group/change", group_form),
    page("/group/change/preview", partial(_preview, GROUP)),
    page("/group/change/now", partial(_change, GROUP), changes=True, confirmed=True),
    page("/group/delete", group_deletion),
    page("/group/delete/now", delete_group, changes=True, confirmed=True),
)
