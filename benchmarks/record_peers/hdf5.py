"""h5py: a contiguous dataset for each field, variable length for blobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from record_peers.system import Batch, Reader, Sample, System, decoded
from record_peers.workload import Schema, Workload


class HDF5Reader(Reader):
    """Samples by ``dataset[i]``, batches by sorted positions, which is what h5py takes."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._n, self._fields = schema.n, schema.fields
        self._file = h5py.File(folder / "samples.h5", "r")
        self._sets = {field.name: self._file[field.name] for field in schema.fields}
        self._blob = schema.packed is None
        self._decode = schema.fields[0].kind == "jpeg"

    def __len__(self) -> int:
        return self._n

    def _blobs(self, values: Any) -> Any:
        return (
            np.stack([decoded(value) for value in values])
            if self._decode
            else [value.tobytes() for value in values]
        )

    def one(self, index: int) -> Sample:
        if self._blob:
            value = self._sets[self._fields[0].name][index]
            return {self._fields[0].name: decoded(value) if self._decode else value.tobytes()}
        return {name: dataset[index] for name, dataset in self._sets.items()}

    def batch(self, indices: npt.NDArray[Any]) -> Batch:
        positions, inverse = np.unique(indices, return_inverse=True)
        found = {name: dataset[positions][inverse] for name, dataset in self._sets.items()}
        return (
            {name: self._blobs(values) for name, values in found.items()} if self._blob else found
        )

    def run(self, start: int, end: int) -> Batch:
        found = {name: dataset[start:end] for name, dataset in self._sets.items()}
        return (
            {name: self._blobs(values) for name, values in found.items()} if self._blob else found
        )

    def close(self) -> None:
        self._file.close()


def write(work: Workload, folder: Path) -> None:
    """Columns at once; a blob after the other."""
    folder.mkdir()
    with h5py.File(folder / "samples.h5", "w") as file:
        for field in work.schema.fields:
            values = work.columns[field.name]
            if work.schema.packed is not None:
                file.create_dataset(field.name, data=values)
                continue
            dataset = file.create_dataset(field.name, (work.n,), h5py.vlen_dtype(np.uint8))
            for number, value in enumerate(values):
                dataset[number] = np.frombuffer(value, np.uint8)


SYSTEMS = {"h5py": System(write, HDF5Reader)}
