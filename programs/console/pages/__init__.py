"""The pages of the console, one module per subject."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.routing import BaseRoute

from flintmq.programs.console.pages import account, accounts, backlog, changes, cluster, manage, messages

ROUTES: Final[Sequence[BaseRoute]] = (
    *cluster.ROUTES,
    *messages.ROUTES,
    *changes.ROUTES,
    *manage.ROUTES,
    *accounts.ROUTES,
    *backlog.ROUTES,
    *account.ROUTES,
)
"""The routes of all pages of the console."""
