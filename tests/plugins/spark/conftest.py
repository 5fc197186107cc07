"""What the Spark tests share. Those without Spark need pyarrow and numpy only, and are left out without them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

collect_ignore_glob = (
    ["test_*.py", "*/test_*.py"] if any(importlib.util.find_spec(name) is None for name in ("numpy", "pyarrow")) else []
)
