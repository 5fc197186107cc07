"""The error by which all test kits report that an implementation breaks a rule of its port, the interface that it
implements."""

from __future__ import annotations


class KitFailure(AssertionError):
    """An implementation breaks a rule of its port, the interface that it implements. The message names the rule and the
    observed result."""


def expect(condition: bool, rule: str, seen: object = "") -> None:
    """Raise :class:`KitFailure` unless a condition of a kit's check holds."""
    if not condition:
        raise KitFailure(f"{rule}; seen: {seen}" if seen != "" else rule)
