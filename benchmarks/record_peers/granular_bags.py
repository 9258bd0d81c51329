"""Granular itself: DatasetWriter, DatasetReader, its own decoders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import granular
import numpy.typing as npt

from record_peers.system import (
    BATCH,
    Batch,
    Reader,
    Sample,
    System,
    samples_of,
    stacked,
    stacked_values,
)
from record_peers.workload import Schema, Workload

TYPES = {"scalar": "i64", "array": "array", "blob": "bytes", "jpeg": "jpg"}


class GranularReader(Reader):
    """Samples by ``reader[i]``, runs by ``reader[a:b]``."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._schema = schema
        self._reader = granular.DatasetReader(str(folder), granular.decoders)
        self.one = self._reader.__getitem__

    def __len__(self) -> int:
        return len(self._reader)

    def batch(self, indices: npt.NDArray[Any]) -> Batch:
        reader = self._reader
        return stacked([reader[index] for index in indices.tolist()], self._schema)

    def records(self) -> Iterator[Sample]:
        n, reader = len(self), self._reader
        return samples_of(reader[start : min(start + BATCH, n)] for start in range(0, n, BATCH))

    def run(self, start: int, end: int) -> Batch:
        found = self._reader[start:end]
        return {
            field.name: stacked_values(found[field.name], field) for field in self._schema.fields
        }

    def close(self) -> None:
        self._reader.close()


def write(work: Workload, folder: Path) -> None:
    """Appended without flushing each time; its index in memory, as by default."""
    spec = {field.name: TYPES[field.kind] for field in work.schema.fields}
    encoders = {**granular.encoders, "jpg": None}  # they are JPEGs already
    with granular.DatasetWriter(str(folder), spec, encoders) as writer:
        for number, sample in enumerate(work.samples()):
            writer.append(sample, flush=number % 1000 == 999)


SYSTEMS = {"granular": System(write, GranularReader)}
