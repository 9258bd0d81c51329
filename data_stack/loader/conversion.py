"""What a framework makes of the batches of a loader: the contract, and what torch, TensorFlow and JAX share."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_stack.dataset.iterator.stacking import Column, as_array, stack_samples
from data_stack.exception import ConfigError

__all__ = [
    "NUMBERS",
    "Conversion",
    "FunctionConversion",
    "Pairs",
    "align_copy",
    "is_aligned",
    "map_nested",
    "map_pairs",
    "one_ahead",
    "parts_of_objects",
]

# what vector instructions may ask of the beginning of a tensor: those of AVX-512 take 64 bytes at once
_ALIGNMENT_BYTES = 64

NUMBERS = frozenset({"b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"})
"""Kinds and bytes of the numbers that torch and TensorFlow have, too: ``dtype.str[1:]``."""

Pairs = Iterator[tuple[Any, Any]]
"""Batches, each with what the loader knows of it."""

_ATOMS = (str, bytes, int, float, complex, bool, type(None))


class Conversion(ABC):
    """What a framework makes of the batches of a loader, one for one, see :meth:`Loader.convert`; a value that pickles."""

    name: str
    """What the batches become, in the words of a message: "torch tensors"."""

    device: Any = None
    """Where they are sent; None: nowhere."""

    @abstractmethod
    def convert(self, batch: Any) -> Any:
        """A batch with tensors for arrays, in the same containers.

        Args:
            batch: nested containers of arrays, which are the receiver's own, and of anything else.
        """
        raise NotImplementedError

    def convert_all(self, pairs: Pairs) -> Pairs:
        """The batches of an iteration, each with what the loader knows of it, in their order.

        It may take the next batch before it gives the one before: the state of the loader is behind those that it gave.
        """
        return map_pairs(pairs, self.convert)


@dataclass(frozen=True)
class FunctionConversion(Conversion):
    """What a function makes of each batch."""

    function: Callable[[Any], Any]
    name: str = "what a function makes of them"

    def convert(self, batch: Any) -> Any:
        return self.function(batch)


def map_nested(value: Any, function: Callable[[Any], Any], leaves: tuple[type, ...] = ()) -> Any:
    """``value`` with what ``function`` makes of everything in it that is neither a container nor plain Python data.

    Containers are dicts and other mappings, tuples (with and without names), lists and dataclasses; they come out anew, of
    the same type where that can be made of its items. What ``function`` gives is not looked into.

    Args:
        value: anything.
        function: gets arrays, tensors, and objects of unknown types.
        leaves: types that are no containers, whatever they derive from.
    """
    kind = type(value)
    if kind is np.ndarray:  # what most batches are made of, found in 0.1 µs
        return function(value)
    if isinstance(value, np.ma.MaskedArray):  # no framework has masks
        try:
            return function(as_array(value))
        except TypeError:
            return value.copy()
    if kind is tuple:
        return tuple([map_nested(item, function, leaves) for item in value])
    if isinstance(value, _ATOMS) and not isinstance(value, np.generic):  # numpy's float64 is a float, too
        return value
    if isinstance(value, leaves):
        return function(value)
    if isinstance(value, Mapping):
        items = {key: map_nested(item, function, leaves) for key, item in value.items()}
        if kind is dict:
            return items
        try:
            return kind(items)
        except TypeError:
            return items
    if isinstance(value, tuple):
        parts = [map_nested(item, function, leaves) for item in value]
        return kind(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [map_nested(item, function, leaves) for item in value]
    if dataclasses.is_dataclass(kind):
        # not by its constructor, which may look at what it gets and wants arrays
        changed = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(changed, field.name, map_nested(getattr(value, field.name), function, leaves))
        return changed
    return function(value)


def parts_of_objects(column: Column) -> Any:
    """A column of Python objects as columns of what is in them, where that is alike; otherwise the list of the objects.

    Alike dicts give a dict of columns, alike tuples a tuple of them. Arrays are copied: those in a batch may be the dataset's.

    Args:
        column: of dtype object.
    """
    if column.ndim == 0:
        return map_nested(column.item(), _copy_value)
    values = list(column)
    if values and isinstance(values[0], (Mapping, tuple)) and len(values[0]):
        try:
            return stack_samples(values)  # which copies
        except ConfigError:  # not alike, which values may be
            return map_nested(values, _copy_value)
    return map_nested(values, _copy_value)


def _copy_value(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def is_aligned(array: Column) -> bool:
    """Whether TensorFlow and JAX compute on the array's own memory."""
    flags = array.flags
    return flags.c_contiguous and flags.writeable and array.dtype.isnative and array.ctypes.data % _ALIGNMENT_BYTES == 0


def align_copy(array: Column) -> Column:
    """A copy for which :func:`is_aligned` holds, in this machine's byte order."""
    dtype = array.dtype.newbyteorder("=")
    n_bytes = array.size * dtype.itemsize
    memory = np.empty(n_bytes + _ALIGNMENT_BYTES, dtype=np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT_BYTES
    aligned: Column = memory[start : start + n_bytes].view(dtype).reshape(array.shape)
    aligned[...] = array
    return aligned


def map_pairs(pairs: Pairs, function: Callable[[Any], Any]) -> Pairs:
    """``(value, mark)`` as ``(function(value), mark)``, one by one; nothing is held on to that the consumer lets go of."""
    for value, mark in pairs:
        made = function(value)
        del value
        yield made, mark
        del made


def one_ahead(pairs: Pairs) -> Pairs:
    """The same pairs, each handed out when the one behind it has been taken, too; the first one at once.

    So what was started for a pair when it was made goes on while the one before is used. An error comes in its turn: behind
    the pairs that were made before it.
    """
    pair = next(pairs, None)
    if pair is None:
        return
    yield pair  # a consumer that waits for its first batch does not wait for two
    pair = None  # free before the next one is made
    pair = next(pairs, None)
    while pair is not None:
        try:
            following = next(pairs, None)
        except Exception:
            yield pair
            raise
        yield pair
        pair = following
        del following
