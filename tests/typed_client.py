"""A program of a user, which `make types` checks and nobody runs: what it asserts of types, and
what mypy must find in it.
"""

from __future__ import annotations

from typing import TypedDict

from typing_extensions import assert_type

import data_stack
from data_stack import DatasetIteratorIF, InformedDatasetIteratorIF
from data_stack.formats.parquet import ParquetDataset


class Sample(TypedDict("Sample", {"class": str})):
    """A sample as `data-stack new` declares it."""

    label: int


train: InformedDatasetIteratorIF[Sample] = data_stack.load("street-signs", split="train")
part = train.shuffle(seed=1).filter(bool).take(5)
assert_type(part, InformedDatasetIteratorIF[Sample])
assert_type(part[0]["label"], int)
assert_type(part[1:3], InformedDatasetIteratorIF[Sample])
assert_type(part.combine(ParquetDataset("more")), InformedDatasetIteratorIF[Sample])
for sample in part:
    assert_type(sample["class"], str)
for fold in train.folds(5):
    assert_type(fold.train, InformedDatasetIteratorIF[Sample])
assert_type(train.map(len), InformedDatasetIteratorIF)
assert_type(train.map(len).dataset_meta.identifier, str | None)
lengths: InformedDatasetIteratorIF[int] = train.map(len)
assert_type(lengths.skip(1)[0], int)
assert_type(ParquetDataset("more").take(3), DatasetIteratorIF)

train[0]["colour"]  # type: ignore[typeddict-item]
part.dataset_mata  # type: ignore[attr-defined]  # noqa: B018
ParquetDataset("more").take(3).dataset_meta  # type: ignore[attr-defined]  # noqa: B018
