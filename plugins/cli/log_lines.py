"""How the lines of a command's log look, wherever they go."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class OwnOutput(logging.Handler):
    """A handler that a command set up. The class tells FlintMQ's handlers from others."""

    is_json = False
    file: Path | None = None
    """Absolute; None for stderr."""

    def name_lines(self, name: str) -> None:
        """Have lines say whose they are; an empty name is left out."""
        if self.is_json:
            from flintmq.core.log_events import JsonFormatter

            self.setFormatter(JsonFormatter(name))
        else:
            self.setFormatter(logging.Formatter(_FORMAT.replace("%(name)s", f"{name} %(name)s") if name else _FORMAT))
