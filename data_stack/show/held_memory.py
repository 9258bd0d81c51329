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
from data_stack.show.markup import size_text

_ITEMS_LOOKED_AT = 1000  # of a longer list; the rest is extrapolated
_MOST_NAMED = 4
_MOST_DEPTH = 6
_TOO_LITTLE_TO_COUNT = 1000


class HeldMemory:
    """Measures iterators one after the other; shared memory counts for the first of them.

    Arrays and tensors count with the memory that they keep alive, a slice with its whole array. The size of a long list is
    extrapolated from a thousand items. Files that Python or numpy maps count nothing, those that pyarrow or torch map count, for
    they do not say so; objects in closures and in objects of other libraries are not found.
    """

    def __init__(self) -> None:
        self._counted: dict[int, Any] = {}  # with the objects, so that their ids stay theirs

    def of(self, iterator: Any) -> tuple[list[str], int]:
        """Descriptions of the objects that ``iterator`` itself holds, largest first, and their bytes."""
        if isinstance(iterator, DatasetIteratorIF):
            attributes = {**_attributes(iterator._sample_access), **_attributes(iterator)}
        else:  # a list, an array, a torch dataset
            attributes = {**_attributes(iterator), "": iterator}
        things: list[tuple[int, str]] = []
        for name, value in attributes.items():
            is_list = isinstance(value, (list, tuple)) and len(value) <= 2 * _MOST_NAMED
            for part in value if is_list else [value]:
                n_bytes = self._bytes(part, 0)
                if n_bytes >= (1 if hasattr(type(part), "shape") else _TOO_LITTLE_TO_COUNT):
                    what = f"{'' if is_list else name.lstrip('_')} {_describe(part)}".lstrip()
                    things.append((n_bytes, f"{what} = {size_text(n_bytes)}"))
        things.sort(key=lambda thing: -thing[0])
        more = ["…"] if len(things) > _MOST_NAMED else []
        return [text for _, text in things[:_MOST_NAMED]] + more, sum(n_bytes for n_bytes, _ in things)

    def _bytes(self, value: Any, depth: int) -> int:
        """The memory that ``value`` keeps alive and that was not counted before."""
        ancestors = type(value).__mro__  # isinstance of an abstract class asks all of its subclasses for each new type
        if value is None or isinstance(value, (bool, type)) or depth > _MOST_DEPTH:
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
        if isinstance(root, ctypes.Array):  # of a large batch, or a client's
            return ctypes.sizeof(root)
        package = type(root).__module__.split(".")[0]
        if package == "data_stack" and not isinstance(root, ComputedPositions):
            return sum(self._bytes(held, depth + 1) for held in _attributes(root).values())
        if isinstance(root, (str, bytes, bytearray, int, float, complex)):
            return sys.getsizeof(root)
        n_bytes = root.nbytes if hasattr(type(root), "nbytes") and package != "h5py" else 0  # of pandas and Arrow, too
        n_bytes = n_bytes() if callable(n_bytes) else n_bytes
        return n_bytes if type(n_bytes) is int else 0

    def _bytes_of_items(self, value: Any, depth: int) -> int:
        is_array = isinstance(value, np.ndarray)  # other things have a size of their own, as a record of a file has
        own = value.nbytes if is_array else sys.getsizeof(value)
        items = chain.from_iterable(value.items()) if isinstance(value, Mapping) else value.flat if is_array else value
        looked_at = list(islice(items, _ITEMS_LOOKED_AT))  # at once, as threads may change it
        n_items = 2 * len(value) if isinstance(value, Mapping) else value.size if is_array else len(value)
        n_bytes, shared, n_bytes_of_views = 0, list[int](), 0
        for item in looked_at:
            is_view, found = _root_of(item) is not item, self._bytes(item, depth)
            n_bytes += 0 if is_view else found
            n_bytes_of_views += item.nbytes if is_view else 0
            shared += [found] if is_view and found else []
        scale = n_items / max(1, len(looked_at))
        # One array of which all items are views is counted whole. Of several ones, the other items may have more.
        of_views = max(sum(shared), n_bytes_of_views * scale) if len(shared) > 1 else sum(shared)
        return own + round(n_bytes * scale + of_views)


def _attributes(thing: Any) -> dict[str, Any]:
    """The attributes of an object by name."""
    slots = chain.from_iterable(getattr(ancestor, "__slots__", ()) for ancestor in type(thing).__mro__)
    return {name: getattr(thing, name) for name in slots if hasattr(thing, name)} | dict(getattr(thing, "__dict__", {}))


def _root_of(value: Any) -> Any:
    """What the memory of an array, memoryview or tensor belongs to; other values themselves."""
    while isinstance(value, (np.ndarray, memoryview)) and not isinstance(value, np.memmap):
        below = value.base if isinstance(value, np.ndarray) else value.obj
        if below is None:
            break
        value = below
    # Types are asked, since a MongoDB database has an attribute of any name. This is a tensor, without importing torch.
    if hasattr(type(value), "untyped_storage"):
        with contextlib.suppress(RuntimeError, NotImplementedError):  # a sparse one
            return value.untyped_storage()
    return value


def _describe(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"{getattr(value, 'dtype', '')} {' × '.join(f'{extent:,}' for extent in shape)}".removeprefix("torch.").strip()
    return f"{type(value).__name__} of {len(value):,}" if hasattr(value, "__len__") else type(value).__name__
