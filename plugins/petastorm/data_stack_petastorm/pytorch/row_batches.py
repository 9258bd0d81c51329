"""Batches of the rows of a reader whose rows must be taken one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from data_stack_petastorm.any_reader import is_at_end, restart, seed_of
from data_stack_petastorm.batches import count_rows, map_columns
from data_stack_petastorm.nan_for_null import NanForNull
from data_stack_petastorm.shuffle_buffer import shuffle


class RowBatches:
    """Batches of rows as lists. A row is a dict; an n-gram is a dict of dicts by offset.

    Each iteration begins with the reader's next epoch, and shuffles the rows in another order.

    Args:
        reader: any reader.
        batch_size: rows of a batch; the last one may have fewer.
        shuffling_queue_capacity: size of the shuffle buffer; 0: the reader's order.
        drop_last: whether to drop the last batch if it is shorter.
        nan_for_null: replaces missing floats.
    """

    _reader: Any
    _batch_size: int
    _shuffling_queue_capacity: int
    _drop_last: bool
    _nan_for_null: NanForNull
    #: Number of iterations that have begun.
    _n_passes: int

    def __init__(
        self,
        reader: Any,
        batch_size: int,
        *,
        shuffling_queue_capacity: int,
        drop_last: bool,
        nan_for_null: NanForNull,
    ) -> None:
        self._reader = reader
        self._batch_size = batch_size
        self._shuffling_queue_capacity = shuffling_queue_capacity
        self._drop_last = drop_last
        self._nan_for_null = nan_for_null
        self._n_passes = 0

    def __iter__(self) -> Iterator[list[dict[Any, Any]]]:
        """Iterate over the batches of another pass."""
        # Each pass starts anew. The previous one may have ended in the middle of the rows.
        if self._n_passes > 0 or is_at_end(self._reader):
            restart(self._reader)
        self._n_passes += 1
        seed = f"{seed_of(self._reader)} {self._n_passes}"
        rows = shuffle(self._iterate_rows(), self._shuffling_queue_capacity, seed)

        batch: list[dict[Any, Any]] = []
        for row in rows:
            batch.append(row)
            if len(batch) == self._batch_size:
                yield batch
                batch = []
        if batch and not self._drop_last:
            yield batch

    def _iterate_rows(self) -> Iterator[dict[Any, Any]]:
        for row in iterate_rows(self._reader):
            yield map_columns(row, self._nan_for_null.fill_value)


def iterate_rows(reader: Any) -> Iterator[dict[Any, Any]]:
    """Iterate over the rows of any reader as dicts; for n-grams, as dicts of dicts by offset."""
    for row_or_row_group in reader:
        values = _as_dict(row_or_row_group)
        if not reader.batched_output:
            yield values
            continue
        # The values are the columns of a row group.
        for number in range(count_rows(values)):
            yield _take_row(values, number)


def _take_row(columns: dict[Any, Any], number: int) -> dict[Any, Any]:
    """Return a row of columns by its number."""

    def take_value(name: str, column: Any) -> Any:
        return column[number]

    return map_columns(columns, take_value)


def _as_dict(row: Any) -> dict[Any, Any]:
    """Return a named tuple as a dict; for n-grams, a dict of named tuples as a dict of dicts."""
    if isinstance(row, dict):
        return {offset: part._asdict() for offset, part in row.items()}
    values: dict[Any, Any] = row._asdict()
    return values
