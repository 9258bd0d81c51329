"""MosaicML Streaming: MDSWriter, StreamingDataset over a local folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy.typing as npt
import streaming

from record_peers.system import BATCH, Batch, Reader, Sample, System, decoded, stacked
from record_peers.workload import Field, Schema, Workload


def _encoding(field: Field) -> str:
    if field.kind == "scalar":
        return {"<i8": "int64", "<i4": "int32"}[field.dtype]
    if field.kind == "array":
        dtype = {"<f4": "float32", "|u1": "uint8"}[field.dtype]
        return f"ndarray:{dtype}:{','.join(map(str, field.shape))}"
    return "bytes"  # its "jpeg" would encode pictures again; it decodes by Pillow, as we do here


class StreamingReader(Reader):
    """Samples by ``dataset[i]``."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._schema = schema
        self._dataset = streaming.StreamingDataset(
            local=str(folder), shuffle=False, batch_size=BATCH
        )

    def __len__(self) -> int:
        return int(self._dataset.size)

    def one(self, index: int) -> Sample:
        sample: Sample = self._dataset[index]
        for field in self._schema.fields:
            if field.kind == "jpeg":
                sample[field.name] = decoded(sample[field.name])
        return sample

    def batch(self, indices: npt.NDArray[Any]) -> Batch:
        return stacked([self.one(index) for index in indices.tolist()], self._schema)

    def records(self) -> Iterator[Sample]:
        return map(self.one, range(len(self)))


def write(work: Workload, folder: Path) -> None:
    """Shards of 64 MiB, its default."""
    columns = {field.name: _encoding(field) for field in work.schema.fields}
    with streaming.MDSWriter(out=str(folder), columns=columns) as writer:
        for sample in work.samples():
            writer.write(sample)


# Opening is not measured: each time it also opens the shared memory of all times before.
SYSTEMS = {
    "streaming": System(
        write, StreamingReader, measures=("write", "one", "batch", "records", "batches")
    )
}
