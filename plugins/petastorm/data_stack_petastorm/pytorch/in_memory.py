"""Petastorm's ``InMemBatchedDataLoader``."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError
from data_stack.util.program_lines import warn_program
from data_stack_petastorm.any_reader import check_reader, is_endless
from data_stack_petastorm.batches import count_rows, map_columns
from data_stack_petastorm.pytorch.batched_data_loader import BatchedDataLoader
from data_stack_petastorm.reader.reader import Reader

#: Maximum number of rows that are read together.
_MAX_ROWS_AT_ONCE: Final = 1024


class InMemBatchedDataLoader:
    """Batches of rows that are read once and kept as tensors: ``num_epochs`` epochs in one loop.

    Args:
        reader: as for :class:`~data_stack_petastorm.pytorch.DataLoader`; it is stopped when the
            rows have been read.
        batch_size: rows per batch; the last of an epoch may have fewer.
        transform_fn: as for :class:`~data_stack_petastorm.pytorch.BatchedDataLoader`, for whole
            columns.
        num_epochs: number of epochs of the loop; None: endless.
        seed: epoch e has the order of ``torch.randperm`` with the seed ``seed + e``, as in
            Petastorm.
        rows_capacity: maximum number of rows to keep; a warning says if an epoch of the reader has
            more. None: one epoch.
        shuffle: whether to shuffle the rows in each epoch.

    Raises:
        ConfigError: an argument is out of range; or ``rows_capacity`` is None, and nothing tells
            where the first epoch ends: the reader is endless and not a :class:`Reader`, or has
            several epochs and a transform that drops rows.
        TypeError: torch has no tensors for the values of a field; the message names it.
    """

    _batch_size: int
    _num_epochs: int | None
    _seed: int
    _shuffle: bool
    #: The rows, as one batch of tensors of shape ``(n_rows, ...)``.
    _columns: dict[Any, Any]
    #: Whether the only loop has begun; it stays True afterwards.
    _in_iter: bool

    def __init__(
        self,
        reader: Any,
        batch_size: int = 1,
        transform_fn: Callable[[Any], Any] | None = None,
        num_epochs: int | None = 1,
        seed: int = 0,
        rows_capacity: int | None = 1024,
        shuffle: bool = False,
    ) -> None:
        check_reader(reader)
        check_integer("batch_size", batch_size, at_least=1)
        if rows_capacity is not None:
            check_integer("rows_capacity", rows_capacity, at_least=1)
        if num_epochs is not None:
            check_integer("num_epochs", num_epochs, at_least=0)
        self._batch_size = batch_size
        self._num_epochs = num_epochs
        self._seed = seed
        self._shuffle = bool(shuffle)
        self._in_iter = False

        max_rows = _choose_max_rows(reader, rows_capacity)
        # All shards must read batches of the same size, as the size determines which rows a shard
        # has. So it depends on the arguments, and not on the number of rows of the shard.
        n_rows_at_once = _MAX_ROWS_AT_ONCE
        if rows_capacity is not None:
            n_rows_at_once = min(n_rows_at_once, rows_capacity)
        self._columns = _read_rows(
            reader, n_rows_at_once, max_rows, transform_fn or torch.as_tensor
        )

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the batches, which are dicts of tensors.

        Raises (while iterating):
            RuntimeError: this is not the first loop; one loop has all epochs, see ``num_epochs``.
        """
        if self._in_iter:
            raise RuntimeError(
                "InMemBatchedDataLoader couldn't be used multiple times: pass num_epochs, and loop "
                "once"
            )
        self._in_iter = True
        n_rows = count_rows(self._columns)
        if n_rows == 0:
            return
        epoch = 0
        while self._num_epochs is None or epoch < self._num_epochs:
            order = torch.arange(n_rows)
            if self._shuffle:
                generator = torch.Generator().manual_seed(self._seed + epoch)
                order = torch.randperm(n_rows, generator=generator)
            for rows in torch.split(order, self._batch_size):
                yield _take_rows(self._columns, rows)
            epoch += 1

    def __len__(self) -> int:
        """Return the number of batches of the loop.

        Raises:
            TypeError: the loader is endless.
        """
        if self._num_epochs is None:
            raise TypeError("an endless loader has no length")
        n_batches_per_epoch = math.ceil(count_rows(self._columns) / self._batch_size)
        return n_batches_per_epoch * self._num_epochs

    def __enter__(self) -> InMemBatchedDataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the rows stay in memory."""


def load_rows_into_memory(
    reader: Any, transform_fn: Callable[[Any], Any], rows_capacity: int
) -> tuple[Any, list[Any]]:
    """Read the first rows of a reader, and stop it.

    Args:
        reader: any reader.
        transform_fn: converts the array of a whole column, shape ``(n_rows, ...)``.
        rows_capacity: maximum number of rows.

    Returns:
        The names of the fields, and their converted columns.
    """
    n_rows_at_once = min(_MAX_ROWS_AT_ONCE, rows_capacity)
    columns = _read_rows(reader, n_rows_at_once, rows_capacity, transform_fn)
    return columns.keys(), list(columns.values())


def _choose_max_rows(reader: Any, rows_capacity: int | None) -> int:
    """Return the maximum number of rows to keep.

    Raises:
        ConfigError: ``rows_capacity`` is None, and nothing tells where the first epoch ends.

    Warns:
        UserWarning: an epoch of the reader has more rows than ``rows_capacity``.
    """
    if not isinstance(reader, Reader):
        if rows_capacity is not None:
            return rows_capacity
        if is_endless(reader):
            raise ConfigError(
                "an endless reader requires rows_capacity=, the number of rows to keep"
            )
        return sys.maxsize

    # Rows that a transform drops are counted, too.
    n_rows_in_epoch = reader.loader(1).plan.n_batch_samples()
    if rows_capacity is None:
        if reader.drops_rows and reader.num_epochs != 1:
            # So many rows would include rows of the next epoch.
            raise ConfigError(
                "the transform of the reader drops rows, so the number of rows in an epoch is not "
                "known: make the reader with num_epochs=1, or pass rows_capacity="
            )
        return n_rows_in_epoch
    if rows_capacity < n_rows_in_epoch:
        warn_program(
            f"rows_capacity keeps the first {rows_capacity:,} of {n_rows_in_epoch:,} rows: pass "
            "rows_capacity=None for all",
            package=__package__,
        )
    return rows_capacity


def _read_rows(
    reader: Any, n_rows_at_once: int, max_rows: int, transform_fn: Callable[[Any], Any]
) -> dict[Any, Any]:
    """Return the first ``max_rows`` rows of a reader as a batch of tensors, and stop the reader."""
    batches: list[dict[Any, Any]] = []
    n_rows = 0
    with BatchedDataLoader(reader, n_rows_at_once) as loader:
        for batch in loader:
            batches.append(batch)
            n_rows += count_rows(batch)
            if n_rows >= max_rows:
                break
    if not batches:
        return {}

    def join_column(tensors: list[torch.Tensor]) -> Any:
        return transform_fn(torch.cat(tensors)[:max_rows].numpy())

    return _join_batches(batches, join_column)


def _join_batches(
    batches: list[dict[Any, Any]], join_column: Callable[[list[Any]], Any]
) -> dict[Any, Any]:
    """Join consecutive batches to one; for n-grams, the columns at each offset.

    Args:
        batches: at least one batch; all have the same columns.
        join_column: joins the parts of a column.
    """
    joined: dict[Any, Any] = {}
    for key, value in batches[0].items():
        parts = [batch[key] for batch in batches]
        if isinstance(value, dict):
            joined[key] = _join_batches(parts, join_column)
        else:
            joined[key] = join_column(parts)
    return joined


def _take_rows(columns: dict[Any, Any], rows: torch.Tensor) -> dict[Any, Any]:
    """Return a batch of some rows.

    Args:
        columns: tensors of shape ``(n_rows, ...)`` by name.
        rows: numbers of the rows, shape ``(n,)``.
    """

    def take(name: str, column: Any) -> Any:
        return column[rows.to(column.device)]

    return map_columns(columns, take)
