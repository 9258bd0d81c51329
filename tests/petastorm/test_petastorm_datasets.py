"""Datasets that Petastorm 0.4.0 to 0.13.1 wrote read equal to what they hold, without Petastorm, Spark or unpickling."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from petastorm_fixtures import expected_digests, expected_timeseries, petastorm_folder, value_digest

from data_stack.formats.parquet import ParquetDataset


@pytest.mark.parametrize(("name", "n_rows"), [("hello_world", 5), ("legacy/0.4.0", 100), ("legacy/0.7.6", 100)])
def test_every_value_equals_what_petastorm_decoded(name: str, n_rows: int) -> None:
    expected = expected_digests(name.removeprefix("legacy/"))

    dataset = ParquetDataset(petastorm_folder(name))

    assert len(dataset) == n_rows
    for sample in dataset:
        assert {field: value_digest(value) for field, value in sample.items()} == expected[int(sample["id"])]


def test_the_time_series_reads_equal_to_its_truth_row_by_row_and_in_batches() -> None:
    expected = expected_timeseries()

    dataset = ParquetDataset(petastorm_folder("timeseries"))
    batch = dataset.read_batch(np.arange(len(dataset)))

    assert list(dataset.schema.fields) == list(batch)
    assert set(batch) == set(expected)
    assert len(dataset) == 5000
    for name in ("timestamp", "accel", "gyro", "spectrum", "flag"):
        assert batch[name].dtype == np.asarray(expected[name]).dtype
        assert np.array_equal(batch[name], np.asarray(expected[name]))
    assert batch["vehicle"].tolist() == [str(text) for text in expected["vehicle"]]
    assert batch["price"].tolist() == [Decimal(str(text)) for text in expected["price"]]
    assert batch["temperature"].tolist() == expected["temperature"]
    for found, wanted in zip(batch["events"], expected["events"], strict=True):
        assert (found is None) == (wanted is None)
        assert wanted is None or (found.dtype == np.int32 and np.array_equal(found, wanted))
    sample = dataset[1533]
    assert np.array_equal(sample["accel"], expected["accel"][1533])
    assert sample["temperature"] is None
    assert isinstance(sample["timestamp"], np.int64)
