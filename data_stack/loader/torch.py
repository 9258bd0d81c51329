"""Iterators for ``torch.utils.data.DataLoader``, batch by batch as columns instead of sample by sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import Batch, DatasetIteratorIF, Sample
from data_stack.dataset.iterator.iterator import adapted, batch_at, checked_indices
from data_stack.dataset.iterator.stacking import stack_values
from data_stack.exception import ConfigError, MissingDependencyError

try:
    import torch
    from torch.utils.data import Dataset
except ImportError as error:
    raise MissingDependencyError("data_stack.loader.torch", "torch", "torch") from error

__all__ = ["TorchDataset", "collate"]

# kinds and bytes of the numbers that torch has, too
_NUMBERS = {"b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"}


class TorchDataset(Dataset[Any]):
    """An iterator as a map-style dataset whose batches are read by :func:`collate`, each in one request for columns.

    ::

        loader = DataLoader(TorchDataset(iterator), batch_size=256, shuffle=True, num_workers=4, collate_fn=collate)

    With another ``collate_fn`` the samples of a batch are read when it looks at the first of them, and are the same. Workers
    may be forked or spawned, if the iterator can be; each of them reads by itself.

    Args:
        iterator: any iterator, or whatever has ``len`` and ``[i]``; it stays the caller's to close.
    """

    def __init__(self, iterator: DatasetIteratorIF | Sequence[Any]) -> None:
        self._iterator = adapted(iterator)
        self._is_listed: bool | None = None

    def __len__(self) -> int:
        return len(self._iterator)

    def __getitem__(self, index: Any) -> Any:
        """What the iterator has at ``index``."""
        return self._iterator[index]

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Sample]:
        """The samples at ``indices``, not read yet.

        Only bare tensors and strings are read here, into a list: ``torch.stack`` takes no other sequence of tensors, and
        torch's own collate hands on the sequence of strings that it was given.

        Raises:
            DatasetOutOfBoundsError: one of the positions lies outside.
        """
        positions = checked_indices(indices, len(self._iterator))
        if self._is_listed is None and len(positions):
            self._is_listed = isinstance(self._iterator[int(positions[0])], (torch.Tensor, str, bytes))
        return self._iterator.__getitems__(positions.tolist()) if self._is_listed else _UnreadSamples(self._iterator, positions)


class _UnreadSamples(Sequence[Any]):
    """Samples that are read as columns by who knows to ask for them, otherwise as a list when the first is looked at."""

    def __init__(self, iterator: DatasetIteratorIF, positions: npt.NDArray[np.intp]) -> None:
        self._iterator, self._positions = iterator, positions
        self._samples: list[Sample] | None = None

    def read_batch(self) -> Batch:
        """All of them as columns."""
        return batch_at(self._iterator, self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: Any) -> Any:
        return self._read()[index]

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._read())

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (self._read(),)  # the dataset is not sent along with its samples

    def _read(self) -> list[Sample]:
        if self._samples is None:  # default_collate iterates several times
            self._samples = self._iterator.__getitems__(self._positions.tolist())
        return self._samples


def collate(samples: Sequence[Sample]) -> Any:
    """Samples as tensors: a tuple of them for tuple samples, a dict for dict samples, one tensor for bare samples.

    A batch of a :class:`TorchDataset` is read as columns, in one request. Columns of numbers become tensors of shape
    ``(n_samples, ...)`` and of their dtype, without a copy unless somebody else may hold the array or torch cannot take it
    as it is. What is no number to torch stays a list of values: strings, bytes, dates, arrays of different shapes.

    Tensors have the values, shapes and dtypes that ``torch.utils.data.default_collate`` gives them. The differences are
    that tuple samples give a tuple and not a list, and that a list of numbers in a sample becomes a row of a tensor.

    Args:
        samples: what :class:`TorchDataset` hands out, or a list of samples of any other dataset; at least one.

    Raises:
        ConfigError: there is none, or they differ in their number of columns or in their keys.
    """
    if isinstance(samples, _UnreadSamples):
        batch = samples.read_batch()
        if isinstance(batch, dict):
            return {key: _as_tensor(column) for key, column in batch.items()}
        return tuple([_as_tensor(column) for column in batch]) if isinstance(batch, tuple) else _as_tensor(batch)
    if len(samples) == 0:
        raise ConfigError("there are no samples to collate")
    if isinstance(samples[0], (Mapping, tuple, list)):
        return _collated_columns(samples)
    return _collated(samples)


def _collated_columns(samples: Sequence[Any]) -> dict[Any, Any] | tuple[Any, ...]:
    """Dicts as a dict, tuples as a tuple, of what their values are collated to."""
    first = samples[0]
    if isinstance(first, Mapping):
        if all(isinstance(sample, Mapping) and sample.keys() == first.keys() for sample in samples):
            return {key: _collated([sample[key] for sample in samples]) for key in first}
    elif all(isinstance(sample, (tuple, list)) and len(sample) == len(first) for sample in samples):
        return tuple([_collated(values) for values in zip(*samples, strict=True)])
    raise ConfigError(f"samples of one batch differ in their columns or keys; the first is {first!r:.200}")


def _as_tensor(column: Any) -> Any:
    """A column as a tensor; as a list of its values if they are no numbers."""
    if isinstance(column, torch.Tensor):
        return column
    if column.dtype == object:
        return _collated(list(column))
    if column.dtype.str[1:] not in _NUMBERS:
        return column.tolist() if column.dtype.kind in "SU" else list(column)
    if not column.dtype.isnative:
        column = column.astype(column.dtype.newbyteorder("="))
    # A view may look at the dataset itself, which nobody who works on a batch in place wants to change. Nor does torch
    # take what is read-only or runs backwards.
    return torch.from_numpy(column if column.flags.owndata and column.flags.writeable else column.copy())


def _collated(values: Sequence[Any]) -> Any:
    """Values of one column, which numpy may not be able to stack."""
    if not values:
        return []
    first = values[0]
    if isinstance(first, torch.Tensor):
        alike = all(isinstance(value, torch.Tensor) and value.shape == first.shape for value in values)
        return torch.stack(list(values)) if alike else list(values)
    stacked = stack_values(values)
    if stacked.dtype != object:
        return _as_tensor(stacked)
    if isinstance(first, (Mapping, tuple)) and len(first):
        try:
            return _collated_columns(values)
        except ConfigError:  # not alike, which values may be
            return list(values)
    return list(values)
