"""Tells what iterators keep in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

import numpy as np

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.positions import ComputedPositions
from data_stack.dataset.reports.markup import size_text

__all__ = ["HeldMemory"]

_ITEMS_LOOKED_AT = 1000  # of a list of more, the rest is taken to be alike
_MOST_NAMED = 4
_MOST_DEPTH = 6
_TOO_LITTLE_TO_COUNT = 1000


class HeldMemory:
    """Measures iterators one after the other; what several of them hold is counted at the first of them.

    Arrays and tensors count as the memory that they keep alive: a slice as all that it was cut from. Python objects are
    counted one by one up to a thousand of a list, and estimated beyond; less than 1 kB of them is not told. What lies in
    files, mapped or not, counts nothing. What is hidden within functions and other libraries' objects is not found.
    """

    def __init__(self) -> None:
        self._counted: dict[int, Any] = {}  # with the objects, so that nothing else gets an id that was counted

    def of(self, iterator: Any) -> tuple[list[str], int]:
        """What ``iterator`` itself holds, in words, largest first, and in bytes."""
        things: list[tuple[int, str]] = []
        access = iterator._sample_access if isinstance(iterator, DatasetIteratorIF) else None
        attributes = [*_attributes(iterator), *(() if access is None else _attributes(access))]
        if not isinstance(iterator, DatasetIteratorIF):  # a list, an array, a torch dataset
            attributes.append(("", iterator))
        for name, value in attributes:
            is_list = isinstance(value, (list, tuple)) and len(value) <= 2 * _MOST_NAMED
            for part in value if is_list else [value]:
                what = f"{'' if is_list else name.lstrip('_')} {_described(part)}".lstrip()
                n_bytes = self._bytes(part, 0)
                if n_bytes >= (_TOO_LITTLE_TO_COUNT if _shape_of(part) is None else 1):
                    things.append((n_bytes, f"{what} = {size_text(n_bytes)}"))
                elif isinstance(part, np.memmap) and (0, f"{what} mapped from a file") not in things:
                    things.append((0, f"{what} mapped from a file"))
        things.sort(key=lambda thing: -thing[0])
        total = sum(n_bytes for n_bytes, _ in things)
        rest = sum(n_bytes for n_bytes, _ in things[_MOST_NAMED:])
        texts = [text for _, text in things[:_MOST_NAMED]]
        return [*texts, f"{size_text(rest)} of other things"] if rest else texts, total

    def _bytes(self, value: Any, depth: int) -> int:
        """The memory that ``value`` keeps alive and nothing before it."""
        if value is None or isinstance(value, (bool, type, DatasetIteratorIF, SampleAccess)) or depth > _MOST_DEPTH:
            return 0
        if isinstance(value, memoryview):
            value = value.obj
        if isinstance(value, np.ndarray):
            return self._array_bytes(value, depth)
        if id(value) in self._counted:
            return 0
        self._counted[id(value)] = value
        if hasattr(value, "untyped_storage"):  # a tensor, without importing torch
            return self._tensor_bytes(value)
        if isinstance(value, (list, tuple, set, frozenset, Mapping)):
            items: Any = chain.from_iterable(islice(value.items(), _ITEMS_LOOKED_AT)) if isinstance(value, Mapping) else value
            looked_at = list(islice(items, _ITEMS_LOOKED_AT))  # at one stroke: threads may be at it
            n_items = len(value) * (2 if isinstance(value, Mapping) else 1)
            n_bytes = sum(self._bytes(item, depth + 1) for item in looked_at)
            return sys.getsizeof(value) + round(n_bytes * n_items / max(1, len(looked_at)))
        if type(value).__module__.split(".")[0] == "data_stack" and not isinstance(value, ComputedPositions):
            return sum(self._bytes(held, depth + 1) for _, held in list(_attributes(value)))
        if isinstance(value, (str, bytes, bytearray, int, float, complex)):
            return sys.getsizeof(value)
        n_bytes = getattr(value, "nbytes", 0) if type(value).__module__.split(".")[0] != "h5py" else 0
        return n_bytes if type(n_bytes) is int else 0  # a pandas Series, an Arrow table

    def _array_bytes(self, array: np.ndarray[Any, Any], depth: int) -> int:
        root: Any = array
        while isinstance(root, np.ndarray) and not isinstance(root, np.memmap) and root.base is not None:
            root = root.base
        if id(root) in self._counted or isinstance(root, np.memmap) or type(root).__name__ == "mmap":
            return 0
        self._counted[id(root)] = root
        n_bytes: int = root.nbytes if isinstance(root, np.ndarray) else array.nbytes
        if array.dtype != object or not array.size:
            return n_bytes
        looked_at = array.ravel()[:_ITEMS_LOOKED_AT].tolist()
        return n_bytes + round(sum(self._bytes(item, depth + 1) for item in looked_at) * array.size / len(looked_at))

    def _tensor_bytes(self, tensor: Any) -> int:
        try:
            storage = tensor.untyped_storage()
            n_bytes, place = int(storage.nbytes()), int(storage.data_ptr())
        except (RuntimeError, NotImplementedError):  # sparse ones and their like
            return 0
        if place and place in self._counted:
            return 0
        self._counted[place] = tensor
        return n_bytes


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of what an object holds."""
    yield from list(getattr(thing, "__dict__", {}).items())
    for ancestor in type(thing).__mro__:
        slots = vars(ancestor).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                yield name, getattr(thing, name)


def _shape_of(value: Any) -> tuple[int, ...] | None:
    shape = getattr(value, "shape", None)
    return shape if isinstance(shape, tuple) else None


def _described(value: Any) -> str:
    shape = _shape_of(value)
    if shape is not None:
        return f"{getattr(value, 'dtype', '')} {' × '.join(f'{extent:,}' for extent in shape)}".removeprefix("torch.").strip()
    return f"{type(value).__name__} of {len(value):,}" if hasattr(value, "__len__") else type(value).__name__
