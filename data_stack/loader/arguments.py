"""Checks of the arguments of a loader."""

from __future__ import annotations

import math
import numbers
from typing import Any, SupportsIndex

import numpy as np

from data_stack.dataset.iterator.indices import check_integer
from data_stack.exception import ConfigError
from data_stack.loader.orders import InOrder, Order, Shuffled

__all__ = ["check_bool", "check_function", "check_shard", "check_timeout", "chosen_order"]


def chosen_order(shuffle: bool | Order) -> Order:
    """The order that ``shuffle`` asks for."""
    if isinstance(shuffle, Order):
        return shuffle
    if not isinstance(shuffle, (bool, np.bool_)):
        raise ConfigError(f"shuffle must be a bool or an order such as BlockShuffled(block_lengths=1000), got {shuffle!r:.80}")
    return Shuffled() if shuffle else InOrder()


def check_timeout(value: Any) -> float | None:
    """A positive number of seconds, or None."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if value is not None and not (is_number and 0 < value < math.inf):
        raise ConfigError(f"timeout_seconds must be a positive number or None, got {value!r:.80}")
    return None if value is None else float(value)


def check_function(name: str, value: Any, expected: str) -> None:
    """Check that ``value`` is None or a function; ``expected`` is for the message."""
    if not (value is None or callable(value)):
        raise ConfigError(f"{name} must be None, {expected}, got {value!r:.80}")


def check_bool(name: str, value: Any) -> bool:
    """A bool, and nothing else with a truth value."""
    if not isinstance(value, (bool, np.bool_)):  # "no" and "false" of a configuration file count as true
        raise ConfigError(f"{name} must be True or False, got {value!r:.80}")
    return bool(value)


def check_shard(shard: tuple[SupportsIndex, SupportsIndex] | None) -> tuple[int, int]:
    """``(rank, world)``; ``(0, 1)`` for None."""
    try:
        rank, world = (0, 1) if shard is None else shard
    except (TypeError, ValueError):
        raise ConfigError(f"shard is (rank, world), for example (0, 4), got {shard!r:.80}") from None
    return (
        check_integer("the rank of a loader's shard", rank, at_least=0),
        check_integer("the world of a loader's shard", world, at_least=1),
    )
