"""The limits: a memory map for each field, and os.pread, used by hand."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from record_peers.system import Batch, Reader, Sample, System, decoded, samples_of
from record_peers.workload import Schema, Workload


class MappedColumns(Reader):
    """Fields of one shape: ``take`` for a batch, ``column[i]`` (a view) for a sample."""

    def __init__(self, schema: Schema, folder: Path, mode: str) -> None:
        # Plain arrays over the map: numpy.memmap itself costs a microsecond more each time.
        self._columns = {
            field.name: np.load(folder / f"{field.name}.npy", mmap_mode="r").view(np.ndarray) for field in schema.fields
        }
        self._n, self._mode = schema.n, mode

    def __len__(self) -> int:
        return self._n

    def one(self, index: int) -> Sample:
        return {name: column[index] for name, column in self._columns.items()}

    def batch(self, indices: npt.NDArray[np.int64]) -> Batch:
        mode = self._mode
        return {name: column.take(indices, 0, None, mode) for name, column in self._columns.items()}

    def records(self) -> Iterator[Sample]:
        return samples_of(
            {name: column[start : start + 1024] for name, column in self._columns.items()} for start in range(0, self._n, 1024)
        )

    def run(self, start: int, end: int) -> Batch:
        return {name: column[start:end].copy() for name, column in self._columns.items()}


class Blobs(Reader):
    """Blobs end to end: slices of the map, or ``os.pread``. Their ends are in memory."""

    def __init__(self, schema: Schema, folder: Path, *, mapped: bool) -> None:
        (field,) = schema.fields
        self._name, self._decode, self._n = field.name, field.kind == "jpeg", schema.n
        bounds = np.load(folder / "bounds.npy")
        self._bounds = bounds.tolist()
        self._starts, self._ends = bounds[:-1], bounds[1:]
        self._file = os.open(folder / "blobs", os.O_RDONLY)
        self._map = mmap.mmap(self._file, 0, access=mmap.ACCESS_READ) if mapped else None

    def __len__(self) -> int:
        return self._n

    def _values(self, starts: list[int], ends: list[int]) -> list[Any]:
        whole, file = self._map, self._file
        if whole is not None:
            values = [whole[start:end] for start, end in zip(starts, ends, strict=True)]
        else:
            values = [os.pread(file, end - start, start) for start, end in zip(starts, ends, strict=True)]
        return [decoded(value) for value in values] if self._decode else values

    def one(self, index: int) -> Sample:
        start, end = self._bounds[index], self._bounds[index + 1]
        value: Any = self._map[start:end] if self._map is not None else os.pread(self._file, end - start, start)
        return {self._name: decoded(value) if self._decode else value}

    def batch(self, indices: npt.NDArray[np.int64]) -> Batch:
        values = self._values(self._starts.take(indices).tolist(), self._ends.take(indices).tolist())
        return {self._name: np.stack(values) if self._decode else values}

    def run(self, start: int, end: int) -> Batch:
        values = self._values(self._bounds[start:end], self._bounds[start + 1 : end + 1])
        return {self._name: np.stack(values) if self._decode else values}

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
        os.close(self._file)


class PackedRecords(Reader):
    """Fields of one shape end to end in each record: one ``os.pread`` a sample."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        assert schema.packed is not None
        self._dtype, self._size, self._n = schema.packed, schema.packed.itemsize, schema.n
        self._file = os.open(folder / "records", os.O_RDONLY)

    def __len__(self) -> int:
        return self._n

    def one(self, index: int) -> Sample:
        record = np.frombuffer(os.pread(self._file, self._size, index * self._size), self._dtype)[0]
        return {name: record[name] for name in self._dtype.names or ()}

    def batch(self, indices: npt.NDArray[np.int64]) -> Batch:
        file, size = self._file, self._size
        return self._columns(b"".join([os.pread(file, size, index * size) for index in indices.tolist()]))

    def _columns(self, data: bytes) -> Batch:
        records = np.frombuffer(data, self._dtype)
        return {name: np.ascontiguousarray(records[name]) for name in self._dtype.names or ()}

    def run(self, start: int, end: int) -> Batch:
        return self._columns(os.pread(self._file, (end - start) * self._size, start * self._size))

    def close(self) -> None:
        os.close(self._file)


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


def open_maps(schema: Schema, folder: Path, mode: str = "raise") -> Reader:
    """A memory map for each field; batches by ``take``, which checks the positions."""
    return Blobs(schema, folder, mapped=True) if schema.packed is None else MappedColumns(schema, folder, mode)


def write_packed(work: Workload, folder: Path) -> None:
    """All fields of a sample end to end."""
    if work.schema.packed is None:
        _write_blobs(work, folder)
        return
    folder.mkdir()
    with open(folder / "records", "wb") as file:
        file.write(memoryview(work.record_array).cast("B"))


def open_packed(schema: Schema, folder: Path) -> Reader:
    """One ``os.pread`` a sample."""
    return Blobs(schema, folder, mapped=False) if schema.packed is None else PackedRecords(schema, folder)


SYSTEMS = {
    "memmap": System(write_maps, open_maps, kind="limit"),
    # mode="clip" reads other samples for wrong positions, without a word
    "memmap, unchecked": System(write_maps, partial(open_maps, mode="clip"), "limit", measures=("batch",), packed_only=True),
    "pread": System(write_packed, open_packed, kind="limit"),
}
