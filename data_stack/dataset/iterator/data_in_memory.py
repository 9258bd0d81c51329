"""Tells whether the arrays and lists that a stack reads were written to.

A fingerprint takes the SHA-256 of all data, which takes longer than to copy them. Where a fingerprint
may never be asked for, a quick digest is noted instead (16 GB/s for arrays); later it says whether
the fingerprint of the source is still that of the copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from xxhash import xxh3_64_intdigest

from data_stack.dataset.iterator.adapted import AdaptedIterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.stack import walk_stack

#: Values that never change, and whose hash tells them apart.
_FIXED: Final = frozenset((int, float, complex, bool, str, bytes, type(None)))

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
        elif not below and getattr(type(layer), "_layer_name", None) == "sequence":
            digests.append(_digest(layer._arguments()["dataset_sequences"], 0))
    return hash(tuple(digests))


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
    if type(value) in _FIXED:
        return hash((type(value), value))
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
    types = tuple(map(type, values))
    if _FIXED.issuperset(types):
        # one hash of all takes a fraction of the time
        return hash((type(values), types, tuple(values)))
    digests = [_digest(value, depth + 1) for value in values]
    return hash((type(values), tuple(digests)))


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
