"""ArrayRecord, read through Grain's data source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt
from absl import flags
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from grain.sources import ArrayRecordDataSource

from record_peers.system import Batch, Reader, Sample, System, unpack
from record_peers.workload import Schema, Workload

if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()  # Grain reads its number of threads from them


class GrainReader(Reader):
    """Samples by the data source's ``[i]``, batches by its ``__getitems__``, runs by ``read(start,
    end)``.
    """

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._schema = schema
        self._source = ArrayRecordDataSource(str(folder / "records"))
        self._reader = ArrayRecordReader(str(folder / "records"))

    def __len__(self) -> int:
        return len(self._source)

    def one(self, index: int) -> Sample:
        return {
            name: values[0] for name, values in unpack([self._source[index]], self._schema).items()
        }

    def batch(self, indices: npt.NDArray[Any]) -> Batch:
        return unpack(self._source.__getitems__(indices.tolist()), self._schema)

    def run(self, start: int, end: int) -> Batch:
        return unpack(self._reader.read(start, end), self._schema)

    def close(self) -> None:
        self._reader.close()
        self._source.__exit__(None, None, None)


def write(work: Workload, folder: Path) -> None:
    """One record a group, as Grain requires."""
    folder.mkdir()
    writer = ArrayRecordWriter(str(folder / "records"), "group_size:1")
    for record in work.packed_records():
        writer.write(record)
    writer.close()


SYSTEMS = {"array_record": System(write, GrainReader)}
