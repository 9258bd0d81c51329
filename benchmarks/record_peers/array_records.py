"""ArrayRecord, read through Grain's data source."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy.typing as npt
from absl import flags
from array_record.python import array_record_module

logging.getLogger("absl").setLevel(logging.ERROR)  # it regrets the absence of JAX
from grain.sources import ArrayRecordDataSource  # noqa: E402

from record_peers.system import Batch, Packed, Reader, Sample, System  # noqa: E402
from record_peers.workload import Schema, Workload  # noqa: E402


class ArrayRecordReader(Reader):
    """Samples by the data source's ``[i]``, batches by its ``__getitems__``, runs by ``read(start, end)``."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()  # Grain looks up its number of threads there
        self._packed = Packed(schema)
        self._source = ArrayRecordDataSource(str(folder / "records"))
        self._reader = array_record_module.ArrayRecordReader(str(folder / "records"))

    def __len__(self) -> int:
        return len(self._source)

    def one(self, index: int) -> Sample:
        return self._packed.sample(self._source[index])

    def batch(self, indices: npt.NDArray[Any]) -> Batch:
        return self._packed.batch(self._source.__getitems__(indices.tolist()))

    def run(self, start: int, end: int) -> Batch:
        return self._packed.batch(self._reader.read(start, end))

    def close(self) -> None:
        self._reader.close()
        self._source.__exit__(None, None, None)


def write(work: Workload, folder: Path) -> None:
    """One record a group, as Grain asks for."""
    folder.mkdir()
    writer = array_record_module.ArrayRecordWriter(str(folder / "records"), "group_size:1")
    for record in work.packed_records():
        writer.write(record)
    writer.close()


SYSTEMS = {"array_record": System(write, ArrayRecordReader)}
