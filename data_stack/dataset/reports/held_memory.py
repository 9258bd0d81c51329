"""Tells what iterators keep in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
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

_INDEX_ARRAY = "index array"

_ATOMS = (str, bytes, bytearray, bool, int, float, complex)

# Of libraries whose arrays lie in a file until they are read.
_IN_FILES = ("h5py", "zarr", "netCDF4", "tables")


class HeldMemory:
    """Measures iterators one after the other; what several of them hold is counted at the first of them.

    Arrays and tensors count as the memory that they keep alive: a slice as all that it was cut from. Python objects are
    counted one by one up to a thousand of a list, and estimated beyond; less than 1 kB of them is not told. What lies in
    files, mapped or not, is named and counts nothing. What is hidden within functions and other libraries' objects is not found.
    """

    def __init__(self) -> None:
        self._counted: set[int] = set()
        self._storages: set[int] = set()
        self._alive: list[Any] = []  # so that nothing else gets an id that was counted

    def of(self, iterator: Any) -> tuple[list[str], int]:
        """What ``iterator`` itself holds, in words, largest first, and in bytes."""
        things: list[tuple[int, str]] = []
        if not isinstance(iterator, DatasetIteratorIF):  # a list, an array, a torch dataset
            things += self._things("", iterator, 0)
        access = iterator._sample_access if isinstance(iterator, DatasetIteratorIF) else None
        for name, value in [*_attributes(iterator), *(() if access is None else _attributes(access))]:
            if isinstance(value, (range, ComputedPositions)) and name == "_positions":
                things.append(
                    (0, _with_size("", "positions as a range" if isinstance(value, range) else "positions by a formula", 0))
                )
            things += self._things(_INDEX_ARRAY if name in ("_positions", "_given") else name.lstrip("_"), value, 0)
        total = sum(n_bytes for n_bytes, _ in things)
        named = sorted(((n_bytes, text) for n_bytes, text in things if text), key=lambda thing: -thing[0])
        rest = total - sum(n_bytes for n_bytes, _ in named[:_MOST_NAMED])
        texts = [text for _, text in named[:_MOST_NAMED]]
        if rest >= _TOO_LITTLE_TO_COUNT:
            texts.append(f"{size_text(rest)} of other things")
        return texts, total

    def _things(self, name: str, value: Any, depth: int) -> Iterator[tuple[int, str]]:
        """(bytes, text) of what ``value`` holds; without text where it is not worth a word."""
        if value is None or isinstance(value, (bool, type)) or depth > _MOST_DEPTH:
            return
        if isinstance(value, memoryview):
            value = value.obj
        if isinstance(value, np.ndarray):
            yield from self._array(name, value)
        elif hasattr(value, "untyped_storage"):  # a tensor, without importing torch
            if self._is_new(value):
                yield from self._tensor(name, value)
        elif isinstance(value, (DatasetIteratorIF, SampleAccess)) or not self._is_new(value):
            return
        elif isinstance(value, (str, bytes, bytearray)):
            n_bytes = sys.getsizeof(value)
            if n_bytes >= _TOO_LITTLE_TO_COUNT:
                yield n_bytes, _with_size(name, "text" if isinstance(value, str) else "bytes", n_bytes)
        elif isinstance(value, (list, tuple, set, frozenset, dict)):
            yield from self._container(name, value, depth)
        elif type(value).__module__.split(".")[0] in _IN_FILES:
            yield 0, f"{name} {type(value).__name__} in a file".lstrip()
        elif type(value).__module__.split(".")[0] == "data_stack":
            for _, held in _attributes(value):
                yield from self._things("", held, depth + 1)
        elif type(getattr(value, "nbytes", None)) is int:  # a pandas Series, an Arrow table
            yield value.nbytes, _with_size(name, type(value).__name__, value.nbytes)

    def _array(self, name: str, array: np.ndarray[Any, Any]) -> Iterator[tuple[int, str]]:
        root: Any = array
        is_mapped = isinstance(array, np.memmap)
        while isinstance(root.base, np.ndarray):
            root = root.base
            is_mapped = is_mapped or isinstance(root, np.memmap)
        owner: Any = root if root.base is None else root.base
        if not (self._is_new(root) and (owner is root or self._is_new(owner))):
            return
        what = f"{array.dtype} {_extents(array.shape)}".rstrip()
        if is_mapped:
            yield 0, f"{name} {what} mapped from a file".lstrip()
            return
        if not array.size:
            return
        if name == _INDEX_ARRAY:
            what = f"{array.itemsize} B × {len(array):,}"
        n_bytes = root.nbytes
        yield n_bytes, _with_size(name, what, n_bytes)
        if array.dtype == object:
            yield from self._objects(array.ravel(), array.size, 0)

    def _tensor(self, name: str, tensor: Any) -> Iterator[tuple[int, str]]:
        try:
            storage = tensor.untyped_storage()
            n_bytes, place = int(storage.nbytes()), int(storage.data_ptr())
        except (RuntimeError, NotImplementedError):  # sparse ones and their like
            yield 0, f"{name} a tensor of unknown size".lstrip()
            return
        if place and place in self._storages:
            return
        self._storages.add(place)
        dtype = str(tensor.dtype).removeprefix("torch.")
        yield n_bytes, _with_size(name, f"tensor {dtype} {_extents(tuple(tensor.shape))}".rstrip(), n_bytes)

    def _container(self, name: str, values: Any, depth: int) -> Iterator[tuple[int, str]]:
        n_bytes = sys.getsizeof(values)
        if isinstance(values, dict):
            pairs = list(islice(values.items(), _ITEMS_LOOKED_AT // 2))  # at one stroke: threads may be at it
            held = self._objects(chain.from_iterable(pairs), 2 * len(values), depth)
        else:
            held = self._objects(values, len(values), depth)
        for size, text in held:
            if text:
                yield size, text
            else:
                n_bytes += size
        if n_bytes >= _TOO_LITTLE_TO_COUNT:
            what = f"{type(values).__name__} of {len(values):,}"
            yield n_bytes, _with_size("", f"{name} ({what})" if name else what, n_bytes)

    def _objects(self, values: Iterable[Any], n_values: int, depth: int) -> Iterator[tuple[int, str]]:
        """What lies in a container: large things with their text; small ones together, without."""
        n_small, n_seen = 0, 0
        for value in list(islice(values, _ITEMS_LOOKED_AT)):
            n_seen += 1
            if isinstance(value, _ATOMS):
                n_small += sys.getsizeof(value) if self._is_new(value) else 0
                continue
            for size, text in self._things("", value, depth + 1):
                if text and n_values <= _MOST_NAMED * 2:
                    yield size, text
                else:
                    n_small += size
        yield round(n_small * n_values / n_seen) if n_seen else 0, ""

    def _is_new(self, value: Any) -> bool:
        if id(value) in self._counted:
            return False
        self._counted.add(id(value))
        self._alive.append(value)
        return True


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of what an object holds."""
    yield from list(getattr(thing, "__dict__", {}).items())
    for ancestor in type(thing).__mro__:
        slots = vars(ancestor).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                yield name, getattr(thing, name)


def _extents(shape: tuple[int, ...]) -> str:
    return " × ".join(f"{extent:,}" for extent in shape)


def _with_size(name: str, what: str, n_bytes: int) -> str:
    return f"{name} {what} = {size_text(n_bytes)}".lstrip()
