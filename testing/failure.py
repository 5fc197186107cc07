"""Defines the error that a test kit raises. A test kit checks whether a class, such as a plugin's flush service, follows the
rules of the interface that the class implements."""

from __future__ import annotations


class KitFailure(AssertionError):
    """A class breaks a rule of the interface that it implements. The message names the rule and the observed result."""


def expect(condition: bool, rule: str, seen: object = "") -> None:
    """Raise :class:`KitFailure` if a condition is false. The message is the rule, and the observed value ``seen`` if one is
    given."""
    if not condition:
        raise KitFailure(f"{rule}; seen: {seen}" if seen != "" else rule)
