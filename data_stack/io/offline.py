"""Tells whether this process may use the network."""

from __future__ import annotations

import os
from typing import Final

#: The environment variable that forbids the network.
OFFLINE: Final = "DATA_STACK_OFFLINE"

#: Values of the variable that allow the network.
_FALSE_VALUES: Final = ("", "0", "false", "no", "off")


def is_offline() -> bool:
    """Return whether the environment variable DATA_STACK_OFFLINE forbids the network."""
    value = os.environ.get(OFFLINE, "").strip().lower()
    return value not in _FALSE_VALUES
