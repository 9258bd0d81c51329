"""Whether this process may use the network."""

from __future__ import annotations

import os
from typing import Final

OFFLINE: Final = "DATA_STACKOFFLINE"


def is_offline() -> bool:
    """Whether the environment variable DATA_STACKOFFLINE says to use no network."""
    return os.environ.get(OFFLINE, "").strip().lower() not in ("", "0", "false", "no", "off")
