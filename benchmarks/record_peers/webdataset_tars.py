"""WebDataset: one tar, read in order only."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import webdataset

from record_peers.system import BATCH, Batch, Packed, Reader, Sample, System
from record_peers.workload import Schema, Workload


class WebDatasetReader(Reader):
    """Samples in order. A member holds all fields end to end: one for each field costs as much again each time."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._n, self._packed = schema.n, Packed(schema)
        self._url = str(folder / "samples.tar")

    def __len__(self) -> int:
        return self._n

    def _records(self) -> Iterator[bytes]:
        for sample in webdataset.WebDataset(self._url, shardshuffle=False, empty_check=False):
            yield sample["bin"]

    def records(self) -> Iterator[Sample]:
        return map(self._packed.sample, self._records())

    def batches(self) -> Iterator[Batch]:
        records = self._records()
        while batch := list(itertools.islice(records, BATCH)):
            yield self._packed.batch(batch)


def write(work: Workload, folder: Path) -> None:
    """A member of the tar for each sample, without the extended headers that a time in fractions of a second takes."""
    folder.mkdir()
    with webdataset.TarWriter(str(folder / "samples.tar"), mtime=0) as writer:
        for number, record in enumerate(work.packed_records()):
            writer.write({"__key__": f"{number:09d}", "bin": record})


SYSTEMS = {"webdataset": System(write, WebDatasetReader, random=False, measures=("write", "open", "records", "batches"))}
