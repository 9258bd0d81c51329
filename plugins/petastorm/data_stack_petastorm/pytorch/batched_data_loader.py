"""Petastorm's ``BatchedDataLoader``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from data_stack_petastorm.pytorch.reader_loader import ReaderLoader
from data_stack_petastorm.pytorch.tensors import as_tensor


class BatchedDataLoader(ReaderLoader):
    """Batches of numbers, like those of :class:`~data_stack_petastorm.pytorch.DataLoader`.

    A function, ``transform_fn``, converts the array of each column. A column without tensors, such
    as text, raises a TypeError that names the field.

    Args:
        reader: as for :class:`~data_stack_petastorm.pytorch.DataLoader`.
        batch_size: rows per batch; the last one may have fewer.
        transform_fn: converts an array of shape ``(batch_size, …)``, also to a device or dtype;
            None: ``torch.as_tensor``.
        shuffling_queue_capacity: as for :class:`~data_stack_petastorm.pytorch.DataLoader`.
        drop_last: whether to drop the last batch of an epoch if it is shorter.

    Raises:
        ConfigError: an argument is out of range.

    Attributes:
        transform_fn: as given, or ``torch.as_tensor``.
    """

    transform_fn: Callable[[Any], Any]

    def __init__(
        self,
        reader: Any,
        batch_size: int = 1,
        transform_fn: Callable[[Any], Any] | None = None,
        shuffling_queue_capacity: int = 0,
        *,
        drop_last: bool = False,
    ) -> None:
        super().__init__(
            reader,
            batch_size,
            shuffling_queue_capacity=shuffling_queue_capacity,
            drop_last=drop_last,
        )
        self.transform_fn = transform_fn or torch.as_tensor

    def _convert_column(self, name: str, column: Any) -> Any:
        array = as_tensor(name, column).numpy()
        return self.transform_fn(array)
