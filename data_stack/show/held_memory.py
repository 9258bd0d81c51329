"""Estimates the memory that iterators hold."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from collections.abc import Mapping
from itertools import chain, islice
from typing import Any

import numpy as np

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.positions import ComputedPositions

_ITEMS_LOOKED_AT = 1000  # of a longer list, evenly spread; the size of the others is extrapolated
_MAX_DEPTH = 6
_TOO_LITTLE_TO_COUNT = 1000


class HeldMemory:
    """Measures iterators one after the other; shared memory counts for the first of them.

    A view of an array or tensor counts with all the memory that it keeps alive. The size of a long list is extrapolated from
    some thousand items. Files mapped by Python or numpy do not count; files mapped by pyarrow or torch do, because these
    libraries do not mark them. Objects in closures and inside objects of other libraries are not found.
    """

    def __init__(self) -> None:
        self._counted: dict[int, Any] = {}  # keeps the objects alive, so that no other object gets their id

    def of(self, iterator: Any) -> int:
        """The bytes that ``iterator`` holds itself, without the iterators below it."""
        held = list(_attributes(iterator).values())
        held += _attributes(iterator._sample_access).values() if isinstance(iterator, DatasetIteratorIF) else [iterator]
        sizes = [self._bytes(value, 0) for value in held]
        return sum(n_bytes for n_bytes in sizes if n_bytes >= _TOO_LITTLE_TO_COUNT)

    def _bytes(self, value: Any, depth: int) -> int:
        """The memory that ``value`` keeps alive and that was not counted before."""
        ancestors = type(value).__mro__  # isinstance of an abstract class checks all of its subclasses for each new type
        if value is None or isinstance(value, (bool, type)) or depth > _MAX_DEPTH:
            return 0
        if DatasetIteratorIF in ancestors or SampleAccess in ancestors:
            return 0
        root = _root_of(value)
        key = root.data_ptr() if hasattr(type(root), "data_ptr") else id(root)
        if key in self._counted or isinstance(root, (np.memmap, mmap.mmap)):
            return 0
        self._counted[key] = root
        if isinstance(value, (list, tuple, set, frozenset, Mapping)) or (isinstance(value, np.ndarray) and value.dtype == object):
            return self._bytes_of_items(value, depth + 1)
        if isinstance(root, ctypes.Array):
            return ctypes.sizeof(root)
        package = type(root).__module__.split(".")[0]
        if package == "data_stack" and not isinstance(root, ComputedPositions):
            return sum(self._bytes(held, depth + 1) for held in _attributes(root).values())
        if isinstance(root, (str, bytes, bytearray, int, float, complex)):
            return sys.getsizeof(root)
        n_bytes = root.nbytes if hasattr(type(root), "nbytes") and package != "h5py" else 0  # also of pandas and Arrow
        n_bytes = n_bytes() if callable(n_bytes) else n_bytes
        return n_bytes if type(n_bytes) is int else 0

    def _bytes_of_items(self, value: Any, depth: int) -> int:
        items = chain.from_iterable(value.items()) if isinstance(value, Mapping) else getattr(value, "flat", value)
        if isinstance(value, (list, tuple)):
            items = value[:: len(value) // _ITEMS_LOOKED_AT | 1]  # odd, to see both of two arrays in turns
        looked_at = list(islice(items, 2 * _ITEMS_LOOKED_AT))  # copied at once, because other threads may change it
        kept = [self._bytes(item, depth) for item in looked_at]
        n_items = value.size if isinstance(value, np.ndarray) else len(value) * (2 if isinstance(value, Mapping) else 1)
        own = value.nbytes if isinstance(value, np.ndarray) else sys.getsizeof(value)
        if np.count_nonzero(kept) < 2:  # such as the rows of one array, which the first row keeps alive
            return own + sum(kept)
        sizes = [n if _root_of(item) is item else item.nbytes for item, n in zip(looked_at, kept, strict=True)]
        return own + max(sum(kept), round(sum(sizes) * n_items / len(looked_at)))


def _attributes(thing: Any) -> dict[str, Any]:
    """The attributes of an object by name."""
    slots = chain.from_iterable(getattr(ancestor, "__slots__", ()) for ancestor in type(thing).__mro__)
    return {name: getattr(thing, name) for name in slots if hasattr(thing, name)} | dict(getattr(thing, "__dict__", {}))


def _root_of(value: Any) -> Any:
    """The owner of the memory of an array, memoryview or tensor; any other value itself."""
    while isinstance(value, (np.ndarray, memoryview)) and not isinstance(value, np.memmap):
        below = value.base if isinstance(value, np.ndarray) else value.obj
        if below is None:
            break
        value = below
    # A tensor. The type is checked, because a MongoDB database has attributes of any name.
    if hasattr(type(value), "untyped_storage"):
        with contextlib.suppress(RuntimeError, NotImplementedError):  # a sparse one
            return value.untyped_storage()
    return value
