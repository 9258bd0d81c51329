"""Hugging Face datasets: save_to_disk, load_from_disk, with the Arrow format, which is the fastest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np

from record_peers.arrow import batch_of, sample_of, table_of
from record_peers.system import Batch, Reader, Sample, System
from record_peers.workload import Schema, Workload

datasets.disable_progress_bars()


class HuggingFaceReader(Reader):
    """Rows of the Arrow format; pictures by its own Image feature, which decodes with Pillow."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._schema = schema
        dataset = datasets.load_from_disk(str(folder))
        self._pictures = schema.fields[0].name if schema.fields[0].kind == "jpeg" else None
        self._dataset = dataset if self._pictures else dataset.with_format("arrow")

    def __len__(self) -> int:
        return len(self._dataset)

    def one(self, index: int) -> Sample:
        if self._pictures:
            return {self._pictures: np.asarray(self._dataset[index][self._pictures])}
        return sample_of(self._dataset[index], self._schema)

    def batch(self, key: Any) -> Batch:
        if self._pictures:
            return {self._pictures: np.stack([np.asarray(image) for image in self._dataset[key][self._pictures]])}
        return batch_of(self._dataset[key], self._schema)

    def run(self, start: int, end: int) -> Batch:
        return self.batch(slice(start, end))


def write(work: Workload, folder: Path) -> None:
    """Columns at once."""
    dataset = datasets.Dataset(datasets.table.InMemoryTable(table_of(work)))
    if work.schema.fields[0].kind == "jpeg":
        dataset = dataset.cast_column(work.schema.fields[0].name, datasets.Image())
    dataset.save_to_disk(str(folder))


SYSTEMS = {"hf_datasets": System(write, HuggingFaceReader)}
