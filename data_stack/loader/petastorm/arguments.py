"""Arguments in Petastorm's spelling as the loader takes them."""

from __future__ import annotations

import numbers
from typing import Any, Final

from data_stack.dataset.iterator.iterator import checked_integer
from data_stack.exception import ConfigError
from data_stack.loader.workers.kinds import WorkerKind

__all__ = ["shard_of", "worker_kind_of"]

_KINDS: Final[dict[str, WorkerKind]] = {"thread": "threads", "process": "processes", "dummy": "inline"}


def worker_kind_of(reader_pool_type: Any) -> WorkerKind:
    """The kind of workers for a ``reader_pool_type``.

    Raises:
        ConfigError: there is no such pool.
    """
    if reader_pool_type not in _KINDS:
        raise ConfigError(f"reader_pool_type is one of {', '.join(map(repr, _KINDS))}, not {reader_pool_type!r:.40}")
    return _KINDS[reader_pool_type]


def shard_of(cur_shard: Any, shard_count: Any) -> tuple[int, int]:
    """Which shard of how many; ``(0, 1)`` where both are None.

    Raises:
        ConfigError: only one of them is given, or there is no such shard.
    """
    if cur_shard is None and shard_count is None:
        return 0, 1
    if cur_shard is None or shard_count is None or not isinstance(cur_shard, numbers.Integral):
        raise ConfigError(
            f"cur_shard and shard_count are integers that go together; got {cur_shard!r:.40} and {shard_count!r:.40}"
        )
    world = checked_integer("shard_count", shard_count, at_least=1)
    return checked_integer(f"cur_shard, one of {world}", cur_shard, at_least=0, at_most=world - 1), world
