"""Copies samples and batches as far as their memory may be shared."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from data_stack.dataset.iterator.access import SampleAccess, stack_columns
from data_stack.dataset.iterator.sample_columns import is_plain_tensor
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.values.stacking import Batch, Column, list_columns, stack_samples

_Batch = TypeVar("_Batch")

# What cannot be written into.
_CONSTANT: frozenset[type] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, *set(np.sctypeDict.values())} - {np.object_, np.void}
)


def copy_value(value: Any) -> Any:
    """A value that may be written into: arrays, plain tensors, lists, dicts, sets and bytearrays are copied, at any depth.

    Objects of other classes are given as they are, and so are the values in them.
    """
    kind = type(value)
    if kind in _CONSTANT:
        return value
    if kind is tuple:
        return tuple([copy_value(item) for item in value])
    if kind is np.ndarray or isinstance(value, np.ndarray):
        return copy_objects(value.copy("K")) if value.dtype.hasobject else value.copy("K")
    if kind is dict:
        return {key: copy_value(item) for key, item in value.items()}
    if kind is list:
        return [copy_value(item) for item in value]
    if kind is set or kind is bytearray:
        return value.copy()
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        made = tuple.__new__(kind, map(copy_value, value))
        if getattr(value, "__dict__", None):  # a subclass may have more than its fields
            made.__dict__.update(copy_value(value.__dict__))
        return made
    return value.clone() if is_plain_tensor(value) else value


def copy_objects(batch: _Batch) -> _Batch:
    """A batch, or a column; in its columns of objects, which must not be shared, values are replaced by copies."""
    given: Any = batch
    for column in list_columns(given):
        for place in np.ndindex(column.shape) if column.dtype == object else ():
            if type(column[place]) not in _CONSTANT:
                column[place] = copy_value(column[place])
    return batch


def detach(batch: Any) -> Any:
    """A batch that shares no memory with its source, so that its receiver may write into it.

    Accesses return new arrays. Parts of other arrays, such as those of a mapped file or of a reader's cache, are copied, and so
    are the values in columns of objects.
    """
    if isinstance(batch, dict):  # n-grams have batches in batches
        return {key: detach(column) for key, column in batch.items()}
    if isinstance(batch, tuple):
        return tuple(map(detach, batch))
    whole = batch.base if isinstance(batch.base, np.ndarray) and batch.base.nbytes == batch.nbytes else batch
    is_new = batch.flags.writeable and whole.flags.owndata
    own = batch if is_new else batch.copy()
    return copy_objects(own) if own.dtype == object else own


class KeptAccess(SampleAccess):
    """Access to samples that are kept as objects, of which it returns copies; a subclass defines ``kept``."""

    @abstractmethod
    def kept(self, positions: Sequence[int]) -> list[Any]:
        """The samples at ``positions`` themselves."""

    def sample(self, position: int) -> Any:
        return copy_value(self.kept([position])[0])

    def samples(self, positions: IndexArrayOfInts) -> list[Any]:
        return list(map(copy_value, self.kept(positions.tolist())))

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        return copy_objects(stack_samples(self.kept(positions.tolist()))) if len(positions) else self.empty_batch()

    def columns(self, keys: Sequence[int | str], positions: IndexArrayOfInts | None = None) -> list[Column]:
        samples = self.kept(range(self.n_samples) if positions is None else positions.tolist())
        return [copy_objects(column) for column in stack_columns(samples, keys, self)]
