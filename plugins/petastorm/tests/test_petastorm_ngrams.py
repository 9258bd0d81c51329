"""N-grams: which rows make a sequence, and what is read of them."""

from __future__ import annotations

import functools
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_stack_petastorm import ngram
from data_stack_petastorm.ngram_iterator import NGramIterator
from hypothesis import given
from hypothesis import strategies as st
from petastorm_fixtures import FIXTURES

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError
from data_stack.formats.parquet import ParquetDataset

NGram = functools.partial(ngram.NGram, within_row_groups=False)
COUNTS: dict[str, dict[str, int]] = json.loads((FIXTURES / "timeseries.expected.json").read_text())[
    "ngrams"
]


def timed(times: Any) -> Any:
    return SequenceDatasetIterator([np.array(times), np.arange(len(times))]).as_dict("time", "row")


def rows_of(ngrams: NGramIterator) -> list[list[int]]:
    return [[int(part["row"]) for part in sample.values()] for sample in ngrams]


def of_length(length: int, threshold: Any = 1, **options: Any) -> ngram.NGram:
    return NGram({offset: ["row"] for offset in range(length)}, threshold, "time", **options)


# ------------------------------------------------------------------ which sequences


@pytest.mark.parametrize("case", COUNTS)
def test_there_are_as_many_sequences_as_petastorm_counts(case: str) -> None:
    length, threshold, overlap = [part.partition("=")[2] for part in case.split(",")]
    rows = ParquetDataset(FIXTURES / "timeseries")
    fields: Any = {offset: ["timestamp"] for offset in range(int(length))}
    described = functools.partial(NGram, fields, int(threshold), "timestamp", overlap == "True")

    crossing = NGramIterator(rows, described())
    within = NGramIterator(rows, described(within_row_groups=True))

    assert len(crossing) == COUNTS[case]["whole_dataset_crossing_row_groups"]
    assert len(within) == COUNTS[case]["petastorm_within_row_groups"]


def naive(times: list[int], length: int, threshold: int, overlap: bool) -> list[list[int]]:
    """What Petastorm does, row by row."""
    found: list[list[int]] = []
    for start in range(len(times) - length + 1):
        window = list(range(start, start + length))
        if not overlap and found and times[start] <= times[found[-1][-1]]:
            continue
        if all(
            times[after] - times[before] <= threshold
            for before, after in itertools.pairwise(window)
        ):
            found.append(window)
    return found


@given(
    gaps=st.lists(st.integers(0, 4), min_size=1, max_size=40),
    length=st.integers(1, 4),
    threshold=st.integers(0, 4),
    overlap=st.booleans(),
)
def test_sequences_equal_those_found_row_by_row(
    gaps: list[int], length: int, threshold: int, overlap: bool
) -> None:
    times = np.cumsum(gaps)
    wanted = of_length(length, threshold, timestamp_overlap=overlap)

    found = NGramIterator(timed(times), wanted)

    assert rows_of(found) == naive(times.tolist(), length, threshold, overlap)


def test_no_sequence_spans_row_groups_where_time_decreases(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"time": [5, 6, 7, 0, 1, 2], "row": range(6)}),
        tmp_path / "a.parquet",
        row_group_size=3,
    )

    assert rows_of(NGramIterator(ParquetDataset(tmp_path), of_length(2))) == [
        [0, 1],
        [1, 2],
        [3, 4],
        [4, 5],
    ]


def test_unsorted_rows_are_named() -> None:
    with pytest.raises(ConfigError, match=r"'time' of row 3 is 1, .* 2 of row 2"):
        NGramIterator(timed([0, 1, 2, 1, 2]), of_length(2))
    with pytest.raises(ConfigError, match=r"'time' has no value \(None\) at position 1"):
        NGramIterator(timed(np.array([0, None, 2], dtype=object)), of_length(2))
    with pytest.raises(ConfigError, match="row groups"):
        NGramIterator(timed([0, 1]), of_length(2, within_row_groups=True))
    assert list(NGramIterator(timed([0]), of_length(2))) == []


# ------------------------------------------------------------------ what is read


def test_batches_lists_columns_and_single_sequences_agree() -> None:
    ngrams = NGramIterator(
        ParquetDataset(FIXTURES / "timeseries"),
        NGram({-1: ["accel"], 1: ["accel", "flag"]}, 100, "timestamp"),
    )
    indices = [4000, 3, 3, -1]

    batch, samples = ngrams.read_batch(indices), ngrams.__getitems__(indices)

    for place, index in enumerate(indices):
        one = ngrams[index]
        for offset, names in ngrams.fields.items():
            for name in names:
                assert np.array_equal(batch[offset][name][place], one[offset][name])
                assert np.array_equal(samples[place][offset][name], one[offset][name])
                assert np.array_equal(
                    ngrams.read_column((offset, name), [index])[0], one[offset][name]
                )
    assert ngrams.read_column(1, [7])[0]["flag"] == ngrams[7][1]["flag"]
    assert ngrams.read_batch([])[1]["accel"].shape == (0, 3)


def test_a_batch_reads_shared_rows_once() -> None:
    made: list[int] = []

    def image(number: int) -> int:
        made.append(int(number))
        return number

    rows = timed(range(100)).map(image, column="row")
    ngrams = NGramIterator(rows, of_length(3))
    assert made in ([], [0])  # for the names of columns
    made.clear()

    ngrams.read_batch(range(20))

    assert sorted(made) == list(range(22))
