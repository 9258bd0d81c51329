"""Tells whether the arrays and lists that a stack reads were written to.

A copy in memory has the fingerprint of its source, as the source was when it was copied. To compute
that fingerprint takes longer than the copy, and most copies never need one. So a copy only takes a
quick digest of its source (16 GB/s for arrays). A fingerprint that is needed later is that of the
source if its digest is still the same.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from xxhash import xxh3_64_intdigest

from data_stack.dataset.iterator.adapted import AdaptedIterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.stack import walk_stack

#: Types of values that never change, and that hold no others.
_ATOMS: Final = frozenset((int, float, complex, bool, str, bytes, type(None)))

#: Types of values that Python's hash tells apart. It does not tell apart all numbers: -1 and -2
#: have one hash, and so have 0.0 and -0.0.
_TEXTS: Final = frozenset((str, bytes))

#: The format of marshal in which equal values have equal bytes. Later ones refer to objects that
#: stand in several places.
_MARSHAL_VERSION: Final = 2

#: Lists in lists beyond this depth are known by their identity.
_MAX_DEPTH: Final = 16


def digest_of_data_in_memory(iterator: DatasetIteratorIF) -> int:
    """Return a number that differs when the data in memory that a stack reads were changed.

    It is valid in this process only. It covers arrays, tensors, pandas columns and lists, at any
    depth, of numbers, texts and bytes. An object of another class counts as unchanged while it is
    the same object.

    Args:
        iterator: the stack; other sources than sequences, such as files, do not count.

    Raises:
        ConfigError: a layer is stacked on itself.
    """
    digests: list[int] = []
    for layer, below in walk_stack(iterator, _list_below):
        samples = layer.adapted_samples if isinstance(layer, AdaptedIterator) else layer
        if isinstance(samples, (list, tuple, np.ndarray)):
            digests.append(_digest(samples, 0))
        elif not below and _is_sequence_layer(layer):
            digests.append(_digest(layer._arguments()["dataset_sequences"], 0))
    return hash(tuple(digests))


def _is_sequence_layer(layer: Any) -> bool:
    """Return whether this is a ``SequenceDatasetIterator``; this module imports no layer."""
    return getattr(type(layer), "_layer_name", None) == "sequence"


def _list_below(iterator: Any) -> list[Any]:
    if not isinstance(iterator, DatasetIteratorIF):
        return []
    return list(iterator._iterators_below() or ())


def _digest(value: Any, depth: int) -> int:
    """Return a number that differs when ``value`` was changed.

    Args:
        value: any object.
        depth: how many containers it is in.
    """
    if type(value) in _ATOMS:
        return _digest_of_atoms(value)
    if isinstance(value, np.ndarray):
        return _digest_of_array(value, depth)
    if isinstance(value, np.generic):
        return hash((value.dtype.str, value.tobytes()))
    if depth >= _MAX_DEPTH:
        return id(value)
    if isinstance(value, (list, tuple)):
        return _digest_of_list(value, depth)
    if isinstance(value, Mapping):
        items: list[tuple[int, int]] = []
        for key, item in value.items():
            items.append((_digest(key, depth + 1), _digest(item, depth + 1)))
        return hash((type(value), tuple(items)))
    if isinstance(value, bytearray):
        return xxh3_64_intdigest(value)
    array = _find_array(value)
    if array is None:
        return id(value)
    return _digest_of_array(array, depth)


def _digest_of_list(values: list[Any] | tuple[Any, ...], depth: int) -> int:
    # One digest of all atoms takes a fraction of the time of a digest of each.
    types = tuple(map(type, values))
    if _TEXTS.issuperset(types):
        return hash((type(values), types, tuple(values)))
    if _ATOMS.issuperset(types):
        return hash((type(values), _digest_of_atoms(tuple(values))))
    digests = [_digest(value, depth + 1) for value in values]
    return hash((type(values), tuple(digests)))


def _digest_of_atoms(values: Any) -> int:
    """Return a digest of an atom, or of a tuple of atoms, by their types and exact values."""
    return xxh3_64_intdigest(marshal.dumps(values, _MARSHAL_VERSION))


def _digest_of_array(array: np.ndarray[Any, Any], depth: int) -> int:
    if array.dtype.hasobject:
        if depth >= _MAX_DEPTH:
            return id(array)
        values = array.ravel().tolist()
        return hash((array.dtype.str, array.shape, _digest(values, depth + 1)))
    data = np.ascontiguousarray(array).reshape(-1)
    if data.nbytes == 0:
        return hash((array.dtype.str, array.shape))
    digest = xxh3_64_intdigest(data.view(np.uint8).data)
    return hash((array.dtype.str, array.shape, digest))


def _find_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return the values of a tensor in memory or of a column of pandas; None for another object."""
    try:
        if hasattr(value, "detach"):
            return np.asarray(value.detach())
        if hasattr(value, "to_numpy"):
            return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        # a dtype that numpy lacks, or a tensor of a device
        return None
    return None
