"""A declared dataset keeps the contract of datasets."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.factories.declarative import DatasetCard, DatasetFactory, PreparedResources, Resources
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.testing import DatasetContract


class RowsFactory(DatasetFactory):
    """Numbers, whose source is far away."""

    card = DatasetCard("rows", "1.0.0", license="CC0-1.0", homepage="https://example.org", citation="A. Author")
    sources = [ResourceDefinition("raw/rows.bin", "https://example.invalid/rows.bin", sha256="0" * 64)]
    splits = ("train", "test")
    class_names = ("even", "odd")

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        with raw["raw/rows.bin"] as resource:
            rows = resource.read()
        for split in prepared.steps(self.splits):
            with prepared.create(f"preprocessed/{split}.bin") as file:
                file.write(rows[:7] if split == "train" else rows[7:])

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        with prepared[f"preprocessed/{split}.bin"] as resource:
            values = np.frombuffer(resource.read(), np.uint8)
        return SequenceDatasetIterator([values, values % 2, values])


class TestRows(DatasetContract):
    factory = RowsFactory
    n_samples: ClassVar[dict[str, int]] = {"train": 7, "test": 3}

    def make_source(self, identifier: str) -> bytes:
        return bytes(range(10))
