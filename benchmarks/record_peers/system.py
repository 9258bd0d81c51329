"""What a compared system does: write a workload, open it, hand out samples and batches."""

from __future__ import annotations

import io
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from record_peers.workload import Field, Schema, Workload

Sample = dict[str, Any]
Batch = dict[str, Any]
"""Arrays of shape ``(n, ...)`` by field, and lists (or object arrays) of bytes for blobs."""

#: Samples of a batch.
BATCH = 256


class Reader(ABC):
    """An open dataset. Every sample is a dict of Python numbers (or numpy's), arrays, bytes; JPEGs
    are decoded.

    What a reader does not say is made of what it says: batches in order of :meth:`run`, samples in
    order of batches.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples."""

    def one(self, index: int) -> Sample:
        """One sample."""
        raise NotImplementedError

    def batch(self, indices: npt.NDArray[np.int64]) -> Batch:
        """These samples, stacked."""
        raise NotImplementedError

    def run(self, start: int, end: int) -> Batch:
        """Samples side by side, stacked, the fastest way there is."""
        return self.batch(np.arange(start, end))

    def batches(self) -> Iterator[Batch]:
        """All samples in order, in batches of 256, the fastest way there is."""
        n = len(self)
        for start in range(0, n, BATCH):
            yield self.run(start, min(start + BATCH, n))

    def records(self) -> Iterator[Sample]:
        """All samples in order, the fastest way there is."""
        return samples_of(self.batches())

    def close(self) -> None:
        """Let go of what is open."""
        return


@dataclass(frozen=True)
class System:
    """A way to store samples.

    Attributes:
        write: writes a workload into a folder that does not exist yet, and closes it.
        open: opens what that wrote.
        kind: ``"ours"``, ``"limit"`` or ``"peer"``; the best peer is sought among peers.
        measures: what it is measured in; empty for everything. A variant is measured where it
            differs.
        packed_only: whether it is measured with fields of one shape alone.
    """

    write: Callable[[Workload, Path], None]
    open: Callable[[Schema, Path], Reader]
    kind: str = "peer"
    measures: tuple[str, ...] = ()
    packed_only: bool = False

    def supports(self, schema: Schema) -> bool:
        """Whether this workload is measured with it."""
        return schema.packed is not None or not self.packed_only

    def measured_in(self, measure: str) -> bool:
        """Whether it is measured so."""
        return measure in self.measures or not self.measures


def check_reader(reader: Reader, work: Workload) -> None:
    """Compare samples and batches with the truth, single ones, random ones, runs.

    Raises:
        ValueError: something differs.
    """
    rng = np.random.default_rng(7)
    if len(reader) != work.n:
        raise ValueError(f"{len(reader)} samples instead of {work.n}")
    indices = np.array([0, work.n - 1, *rng.integers(0, work.n, 20)])
    work.check(stacked([reader.one(index) for index in indices.tolist()], work.schema), indices)
    for _ in range(3):
        indices = rng.integers(0, work.n, BATCH)
        work.check(reader.batch(indices), indices)
    first = list(islice(reader.records(), 1500))
    work.check(stacked(first, work.schema), np.arange(len(first)))
    for number, batch in enumerate(islice(reader.batches(), 5)):
        work.check(batch, np.arange(number * BATCH, min((number + 1) * BATCH, work.n)))


def decoded(jpeg: bytes) -> npt.NDArray[np.uint8]:
    """A picture by Pillow, which is what every peer that decodes uses."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(jpeg)))


def unpack(records: list[bytes], schema: Schema) -> Batch:
    """Records as a batch: concatenated fields, or the only blob."""
    dtype, field = schema.packed, schema.fields[0]
    if dtype is None:
        return {
            field.name: np.stack([decoded(record) for record in records])
            if field.kind == "jpeg"
            else records
        }
    table = np.frombuffer(b"".join(records), dtype)
    return {name: np.ascontiguousarray(table[name]) for name in dtype.names or ()}


def stacked(samples: Sequence[Sample], schema: Schema) -> Batch:
    """Samples as a batch, the way torch's and Grain's collate functions do it."""
    return {
        field.name: stacked_values([sample[field.name] for sample in samples], field)
        for field in schema.fields
    }


def stacked_values(values: list[Any], field: Field) -> Any:
    """Values of one field as a batch's."""
    if field.kind == "scalar":
        return np.array(values, field.dtype)
    return values if field.kind == "blob" else np.stack(values)


def samples_of(batches: Iterator[Batch]) -> Iterator[Sample]:
    """The samples of batches; arrays are views of the batch."""
    for batch in batches:
        names = tuple(batch)
        columns = [
            values.tolist() if isinstance(values, np.ndarray) and values.ndim == 1 else values
            for values in batch.values()
        ]
        # Written out, as one does who knows the fields: dict(zip(...)) would take most of the time.
        if len(names) == 1:
            (name,), (column,) = names, columns
            for value in column:
                yield {name: value}
        elif len(names) == 2:
            name, name_2 = names
            for value, value_2 in zip(*columns, strict=True):
                yield {name: value, name_2: value_2}
        else:
            name, name_2, name_3 = names
            for value, value_2, value_3 in zip(*columns, strict=True):
                yield {name: value, name_2: value_2, name_3: value_3}


def bytes_on_disk(folder: Path) -> int:
    """Sizes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def sync(folder: Path) -> None:
    """Make all files below a folder durable."""
    for place in [folder, *folder.rglob("*")]:
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove(folder: Path) -> None:
    """Remove a folder, if it is there."""
    shutil.rmtree(folder, ignore_errors=True)
