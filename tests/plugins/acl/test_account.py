"""What an account may do is decided here for every request."""

from __future__ import annotations

import pytest

from flintmq.config.errors import ConfigError
from flintmq.config.secret import Secret
from flintmq.config.sections.models import AclAccount
from flintmq.core.kernel.ports.access import Need, Permission
from flintmq.plugins.acl.account import INTERNAL_TOPICS, Account


def account(**fields: object) -> Account:
    """An account with a key and a secret."""
    return Account.of(AclAccount(accessKey="orders-service", secretKey=Secret("a secret of ten"), **fields))  # type: ignore[arg-type]


def publish(topic: str) -> Need:
    return Need(topic, Permission.PUB)


def test_named_topics_and_groups_come_before_the_default() -> None:
    """Also where they take away what the default gives."""
    found = account(defaultTopicPerm="ANY", topicPerms=("Bills=DENY",), groupPerms=("billing=SUB",))
    subscribed = Need("billing", Permission.SUB, is_group=True)
    assert found.first_lacking([publish("Orders"), subscribed]) is None
    assert found.first_lacking([publish("Orders"), publish("Bills")]) == publish("Bills")
    other = Need("other", Permission.SUB, is_group=True)
    assert found.first_lacking([subscribed, other]) == other, "groups are denied by default"


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_a_default_does_not_open_topics_where_messages_of_others_wait(topic: str) -> None:
    """Delayed and half messages of every topic lie there; an account needs their names."""
    assert account(defaultTopicPerm="ANY").first_lacking([publish(topic)]) == publish(topic)
    assert account(topicPerms=(f"{topic}=PUB",)).first_lacking([publish(topic)]) is None


def test_an_administrator_may_do_everything() -> None:
    """RocketMQ's rule."""
    assert account(admin=True, defaultTopicPerm="DENY").first_lacking([publish("Orders")]) is None


def test_a_mistake_names_the_account_and_no_secret() -> None:
    """A file may have hundreds of accounts, and its errors go to logs."""
    with pytest.raises(ConfigError, match="account orders-service: a permission is one of") as found:
        account(defaultTopicPerm="EVERYTHING")
    assert "a secret" not in str(found.value)
    assert "a secret" not in repr(account())
