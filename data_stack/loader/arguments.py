"""Checks the arguments of a loader that need no class of their own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from data_stack.exception import ConfigError
from data_stack.loader.orders.in_order import InOrder
from data_stack.loader.orders.order import Order
from data_stack.loader.orders.shuffled import Shuffled


def parse_shuffle(shuffle: bool | Order) -> Order:
    """Return the order that ``shuffle`` asks for.

    Raises:
        ConfigError: it is neither a bool nor an order.
    """
    if isinstance(shuffle, Order):
        return shuffle
    if check_bool("shuffle", shuffle):
        return Shuffled()
    return InOrder()


def check_bool(name: str, value: Any) -> bool:
    """Return a bool of Python or numpy as Python's.

    Raises:
        ConfigError: it is something else.
    """
    # "no" and "false" of a configuration file would count as true.
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError(f"{name} must be True or False, got {value!r:.80}")
    return bool(value)


def check_function(name: str, value: Any) -> None:
    """Check that an argument is a function or None.

    Raises:
        ConfigError: it is something else.
    """
    if value is not None and not callable(value):
        raise ConfigError(f"{name} must be a function, or None, got {value!r:.80}")


def check_timeout(timeout_seconds: Any) -> None:
    """Check that a timeout is a positive number or None.

    Raises:
        ConfigError: it is something else.
    """
    if timeout_seconds is None:
        return
    is_number = isinstance(timeout_seconds, (int, float, np.number))
    is_bool = isinstance(timeout_seconds, bool)
    if is_bool or not is_number or not 0 < timeout_seconds < math.inf:
        raise ConfigError(
            f"timeout_seconds must be a positive number or None, got {timeout_seconds!r:.80}"
        )
