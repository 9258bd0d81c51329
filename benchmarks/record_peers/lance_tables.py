"""Lance: write_dataset, take, to_batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import numpy.typing as npt

from record_peers.arrow import batch_of, sample_of, table_of
from record_peers.system import BATCH, Batch, Reader, Sample, System, samples_of
from record_peers.workload import Schema, Workload


class LanceReader(Reader):
    """Samples and batches by ``take``, runs by ``to_batches``."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._schema, self._dataset = schema, lance.dataset(str(folder))

    def __len__(self) -> int:
        return int(self._dataset.count_rows())

    def one(self, index: int) -> Sample:
        return sample_of(self._dataset.take([index]), self._schema)

    def batch(self, indices: npt.NDArray[Any]) -> Batch:
        return batch_of(self._dataset.take(indices.tolist()), self._schema)

    def records(self) -> Iterator[Sample]:
        return samples_of(batch_of(batch, self._schema) for batch in self._dataset.to_batches())

    def batches(self) -> Iterator[Batch]:
        for batch in self._dataset.to_batches(batch_size=BATCH):
            yield batch_of(batch, self._schema)


def write(work: Workload, folder: Path) -> None:
    """Columns at once."""
    lance.write_dataset(table_of(work), str(folder))


SYSTEMS = {"lance": System(write, LanceReader)}
