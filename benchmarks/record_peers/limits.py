"""The limit: a memory map for each field."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from record_peers.system import Batch, Reader, Sample, System, decoded, samples_of
from record_peers.workload import Schema, Workload


class MappedColumns(Reader):
    """Fields of one shape: ``take`` for a batch, ``column[i]`` (a view) for a sample."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        # Plain arrays over the map: numpy.memmap itself costs a microsecond more each time.
        self._columns = {
            field.name: np.load(folder / f"{field.name}.npy", mmap_mode="r").view(np.ndarray)
            for field in schema.fields
        }
        self._n = schema.n

    def __len__(self) -> int:
        return self._n

    def one(self, index: int) -> Sample:
        return {name: column[index] for name, column in self._columns.items()}

    def batch(self, indices: npt.NDArray[np.int64]) -> Batch:
        return {name: column.take(indices, 0) for name, column in self._columns.items()}

    def records(self) -> Iterator[Sample]:
        return samples_of(
            {name: column[start : start + 1024] for name, column in self._columns.items()}
            for start in range(0, self._n, 1024)
        )

    def run(self, start: int, end: int) -> Batch:
        return {name: column[start:end].copy() for name, column in self._columns.items()}


class OwnedColumns(MappedColumns):
    """The same maps; a sample has values of its own, as ours have: copies of rows, and Python's
    numbers.
    """

    def one(self, index: int) -> Sample:
        sample: Sample = {}
        for name, column in self._columns.items():
            sample[name] = column.item(index) if column.ndim == 1 else column[index].copy()
        return sample


class Blobs(Reader):
    """Concatenated blobs: slices of the map. Their bounds are in memory."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        (field,) = schema.fields
        self._name, self._decode, self._n = field.name, field.kind == "jpeg", schema.n
        bounds = np.load(folder / "bounds.npy")
        self._bounds = bounds.tolist()
        self._starts, self._ends = bounds[:-1], bounds[1:]
        with open(folder / "blobs", "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return self._n

    def _values(self, starts: list[int], ends: list[int]) -> Batch:
        whole = self._map
        values: Any = [whole[start:end] for start, end in zip(starts, ends, strict=True)]
        return {
            self._name: np.stack([decoded(value) for value in values]) if self._decode else values
        }

    def one(self, index: int) -> Sample:
        value = self._map[self._bounds[index] : self._bounds[index + 1]]
        return {self._name: decoded(value) if self._decode else value}

    def batch(self, indices: npt.NDArray[np.int64]) -> Batch:
        return self._values(self._starts.take(indices).tolist(), self._ends.take(indices).tolist())

    def run(self, start: int, end: int) -> Batch:
        return self._values(self._bounds[start:end], self._bounds[start + 1 : end + 1])

    def close(self) -> None:
        self._map.close()


def _write_blobs(work: Workload, folder: Path) -> None:
    folder.mkdir()
    (values,) = work.columns.values()
    np.save(folder / "bounds.npy", np.cumsum([0, *map(len, values)]))
    with open(folder / "blobs", "wb") as file:
        file.writelines(values)


def write_maps(work: Workload, folder: Path) -> None:
    """A file for each field."""
    if work.schema.packed is None:
        _write_blobs(work, folder)
        return
    folder.mkdir()
    for name, column in work.columns.items():
        np.save(folder / f"{name}.npy", column)


def open_maps(schema: Schema, folder: Path) -> Reader:
    """A memory map for each field; batches by ``take``."""
    return Blobs(schema, folder) if schema.packed is None else MappedColumns(schema, folder)


SYSTEMS = {
    "memmap": System(write_maps, open_maps, kind="limit"),
    "memmap, owned": System(
        write_maps, OwnedColumns, kind="limit", measures=("one",), packed_only=True
    ),
}
