"""Tells what iterators keep in memory."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
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
        if isinstance(iterator, DatasetIteratorIF):
            attributes = {**_attributes(iterator._sample_access), **_attributes(iterator)}
        else:  # a list, an array, a torch dataset
            attributes = {**_attributes(iterator), "": iterator}
        things: list[tuple[int, str]] = []
        for name, value in attributes.items():
            is_list = isinstance(value, (list, tuple)) and len(value) <= 2 * _MOST_NAMED
            for part in value if is_list else [value]:
                n_bytes = self._bytes(part, 0)
                if n_bytes >= (1 if hasattr(part, "shape") else _TOO_LITTLE_TO_COUNT):
                    what = f"{'' if is_list else name.lstrip('_')} {_describe(part)}".lstrip()
                    things.append((n_bytes, f"{what} = {size_text(n_bytes)}"))
        things.sort(key=lambda thing: -thing[0])
        rest = sum(n_bytes for n_bytes, _ in things[_MOST_NAMED:])
        texts = [text for _, text in things[:_MOST_NAMED]] + ([f"{size_text(rest)} of other things"] if rest else [])
        return texts, sum(n_bytes for n_bytes, _ in things)

    def _bytes(self, value: Any, depth: int) -> int:
        """The memory that ``value`` keeps alive and nothing before it."""
        if value is None or isinstance(value, (bool, type, DatasetIteratorIF, SampleAccess)) or depth > _MOST_DEPTH:
            return 0
        root = value
        while isinstance(root, np.ndarray) and not isinstance(root, np.memmap) and root.base is not None:
            root = root.base
        key = id(root)
        if hasattr(root, "untyped_storage"):  # a tensor, without importing torch
            with contextlib.suppress(RuntimeError, NotImplementedError):  # sparse ones and their like
                root = root.untyped_storage()
                key = root.data_ptr()
        if key in self._counted or isinstance(root, np.memmap) or type(root).__name__ == "mmap":
            return 0
        self._counted[key] = root
        if isinstance(value, (list, tuple, set, frozenset, Mapping)) or (isinstance(value, np.ndarray) and value.dtype == object):
            return self._bytes_of_items(value, depth + 1)
        package = type(root).__module__.split(".")[0]
        if package == "data_stack" and not isinstance(root, ComputedPositions):
            return sum(self._bytes(held, depth + 1) for held in _attributes(root).values())
        if isinstance(root, (str, bytes, bytearray, int, float, complex)):
            return sys.getsizeof(root) if root is value else value.nbytes
        n_bytes = getattr(root, "nbytes", 0) if package != "h5py" else 0  # also a pandas Series, an Arrow table
        n_bytes = n_bytes() if callable(n_bytes) else n_bytes
        return n_bytes if type(n_bytes) is int else 0

    def _bytes_of_items(self, value: Any, depth: int) -> int:
        n_items, own = len(value), value.nbytes if isinstance(value, np.ndarray) else sys.getsizeof(value)
        items: Any = value.ravel()[:_ITEMS_LOOKED_AT].tolist() if isinstance(value, np.ndarray) else value
        if isinstance(value, Mapping):
            items, n_items = chain.from_iterable(islice(value.items(), _ITEMS_LOOKED_AT)), 2 * n_items
        looked_at = list(islice(items, _ITEMS_LOOKED_AT))  # at one stroke: threads may be at it
        n_bytes = sum(self._bytes(item, depth) for item in looked_at)
        return own + round(n_bytes * n_items / max(1, len(looked_at)))


def _attributes(thing: Any) -> dict[str, Any]:
    """What an object holds, by name."""
    slots = chain.from_iterable(getattr(ancestor, "__slots__", ()) for ancestor in type(thing).__mro__)
    return {name: getattr(thing, name) for name in slots if hasattr(thing, name)} | dict(getattr(thing, "__dict__", {}))


def _describe(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"{getattr(value, 'dtype', '')} {' × '.join(f'{extent:,}' for extent in shape)}".removeprefix("torch.").strip()
    return f"{type(value).__name__} of {len(value):,}" if hasattr(value, "__len__") else type(value).__name__
