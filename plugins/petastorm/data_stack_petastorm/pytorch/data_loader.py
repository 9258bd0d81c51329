"""Petastorm's ``DataLoader``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from data_stack_petastorm.pytorch.collation import decimal_friendly_collate
from data_stack_petastorm.pytorch.reader_loader import ReaderLoader
from data_stack_petastorm.pytorch.tensors import TYPES_WITHOUT_TENSORS, as_tensor


class DataLoader(ReaderLoader):
    """Batches of a reader's rows: dicts of tensors of shape ``(batch_size, …)``.

    For n-grams, a batch has one such dict per offset.

    ::

        with DataLoader(make_reader("file:///data/frames", num_epochs=10, seed=7), 64) as loader:
            for batch in loader:
                batch["image"]

    With the default ``collate_fn``, rows are read and shuffled as columns, never one by one.
    The columns of a batch depend on the values of the field:

    * numbers: a tensor, without a copy. ``uint16`` becomes ``int32``, ``uint32`` becomes ``int64``,
      and ``bool`` becomes ``uint8``, as in Petastorm.
    * strings, bytes and Decimals: a list. With :func:`make_batch_reader`, iterating raises a
      TypeError that names the field, with any ``collate_fn``.
    * values that are None, and arrays of text: a TypeError, with any ``collate_fn``.
    * arrays of different shapes: a TypeError, unless a ``collate_fn`` accepts them.
    * floats without a value: NaN, with :func:`make_batch_reader` or ``nulls="nan"``. Without these
      they are None, and raise a TypeError.

    Args:
        reader: a reader of :func:`make_reader` or :func:`make_batch_reader`, which determines
            order, shard, epochs and workers; or a WeightedSamplingReader, whose rows are taken one
            by one.
        batch_size: rows per batch; the last one may have fewer.
        collate_fn: makes a batch from a list of rows, which are dicts; it runs in the workers.
        shuffling_queue_capacity: minimum number of rows to shuffle together, rounded up to whole
            row groups, which are in memory together. 0: the reader's order.
        drop_last: whether to drop the last batch of an epoch if it is shorter.

    Raises:
        ConfigError: an argument is out of range.

    Attributes:
        collate_fn: as given.
    """

    collate_fn: Callable[[list[Any]], Any]

    def __init__(
        self,
        reader: Any,
        batch_size: int = 1,
        collate_fn: Callable[[list[Any]], Any] = decimal_friendly_collate,
        shuffling_queue_capacity: int = 0,
        *,
        drop_last: bool = False,
    ) -> None:
        # Batches of columns equal those of the default function, and are faster.
        own_collate_fn: Callable[[list[Any]], Any] | None = collate_fn
        if collate_fn is decimal_friendly_collate:
            own_collate_fn = None
        super().__init__(
            reader,
            batch_size,
            shuffling_queue_capacity=shuffling_queue_capacity,
            drop_last=drop_last,
            collate_fn=own_collate_fn,
        )
        self.collate_fn = collate_fn

    def _convert_column(self, name: str, column: Any) -> Any:
        is_list = isinstance(column, list) and not self.reader.batched_output
        if is_list and all(isinstance(value, TYPES_WITHOUT_TENSORS) for value in column):
            return column
        return as_tensor(name, column)
