"""N-grams: which rows make a sequence, and what is read of them."""

from __future__ import annotations

import functools
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_stack_petastorm import ngram
from data_stack_petastorm.ngram_iterator import NGramIterator
from data_stack_petastorm.unischema import Unischema, UnischemaField
from hypothesis import given
from hypothesis import strategies as st
from petastorm_fixtures import FIXTURES

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError
from data_stack.formats.parquet import ParquetDataset

#: N-grams of these tests may span row groups, unless they say otherwise.
NGram = functools.partial(ngram.NGram, within_row_groups=False)

#: How many sequences Petastorm found in the time series, by its arguments.
COUNTS: dict[str, dict[str, int]] = json.loads((FIXTURES / "timeseries.expected.json").read_text())[
    "ngrams"
]


def make_timed_rows(times: Any) -> Any:
    """Return rows with these timestamps, and their numbers."""
    columns = [np.array(times), np.arange(len(times))]
    return SequenceDatasetIterator(columns).as_dict("time", "row")


def rows_of(ngrams: NGramIterator) -> list[list[int]]:
    """Return the numbers of the rows of each sequence."""
    return [[int(part["row"]) for part in sequence.values()] for sequence in ngrams]


def make_ngram(length: int, threshold: Any = 1, **options: Any) -> ngram.NGram:
    """Return the description of sequences of a length, which have the numbers of their rows."""
    return NGram({offset: ["row"] for offset in range(length)}, threshold, "time", **options)


# ------------------------------------------------------------------ which sequences


@pytest.mark.parametrize("case", COUNTS)
def test_there_are_as_many_sequences_as_petastorm_counts(case: str) -> None:
    length, threshold, overlap = [part.partition("=")[2] for part in case.split(",")]
    rows = ParquetDataset(FIXTURES / "timeseries")
    describe = functools.partial(
        NGram,
        {offset: ["timestamp"] for offset in range(int(length))},
        int(threshold),
        "timestamp",
        timestamp_overlap=overlap == "True",
    )

    crossing = NGramIterator(rows, describe())
    within = NGramIterator(rows, describe(within_row_groups=True))

    assert len(crossing) == COUNTS[case]["whole_dataset_crossing_row_groups"]
    assert len(within) == COUNTS[case]["petastorm_within_row_groups"]


def find_row_by_row(
    times: list[int], length: int, threshold: int, overlap: bool
) -> list[list[int]]:
    """Return the sequences as Petastorm finds them, row by row."""
    sequences: list[list[int]] = []
    for start in range(len(times) - length + 1):
        rows = list(range(start, start + length))
        if not overlap and sequences:
            last_row = sequences[-1][-1]
            if times[start] <= times[last_row]:
                continue
        gaps = [times[after] - times[before] for before, after in itertools.pairwise(rows)]
        if all(gap <= threshold for gap in gaps):
            sequences.append(rows)
    return sequences


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
    described = make_ngram(length, threshold, timestamp_overlap=overlap)

    sequences = NGramIterator(make_timed_rows(times), described)

    expected = find_row_by_row(times.tolist(), length, threshold, overlap)
    assert rows_of(sequences) == expected


def test_no_sequence_spans_row_groups_where_time_decreases(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"time": [5, 6, 7, 0, 1, 2], "row": range(6)}),
        tmp_path / "a.parquet",
        row_group_size=3,
    )

    assert rows_of(NGramIterator(ParquetDataset(tmp_path), make_ngram(2))) == [
        [0, 1],
        [1, 2],
        [3, 4],
        [4, 5],
    ]


def test_unsorted_rows_are_named() -> None:
    with pytest.raises(ConfigError, match=r"'time' of row 3 is 1, .* 2 of row 2"):
        NGramIterator(make_timed_rows([0, 1, 2, 1, 2]), make_ngram(2))


def test_rows_without_a_timestamp_are_named() -> None:
    times = np.array([0, None, 2], dtype=object)

    with pytest.raises(ConfigError, match=r"'time' has no value \(None\) at position 1"):
        NGramIterator(make_timed_rows(times), make_ngram(2))


def test_sequences_within_row_groups_need_row_groups() -> None:
    with pytest.raises(ConfigError, match="row groups"):
        NGramIterator(make_timed_rows([0, 1]), make_ngram(2, within_row_groups=True))


def test_fewer_rows_than_a_sequence_have_none() -> None:
    assert list(NGramIterator(make_timed_rows([0]), make_ngram(2))) == []


# ------------------------------------------------------------------ what is read


def test_batches_lists_columns_and_single_sequences_agree() -> None:
    ngrams = NGramIterator(
        ParquetDataset(FIXTURES / "timeseries"),
        NGram({-1: ["accel"], 1: ["accel", "flag"]}, 100, "timestamp"),
    )
    indices = [4000, 3, 3, -1]

    batch = ngrams.read_batch(indices)
    samples = ngrams.__getitems__(indices)

    for offset, names in ngrams.fields.items():
        for name in names:
            column = ngrams.read_column((offset, name), indices)
            for place, index in enumerate(indices):
                value = ngrams[index][offset][name]
                assert np.array_equal(batch[offset][name][place], value)
                assert np.array_equal(samples[place][offset][name], value)
                assert np.array_equal(column[place], value)


def test_the_column_of_an_offset_has_whole_rows() -> None:
    rows = make_timed_rows(range(10))
    ngrams = NGramIterator(rows, NGram({0: ["row"], 1: ["row", "time"]}, 1, "time"))

    assert ngrams.read_column(1, [7]).tolist() == [{"row": 8, "time": 8}]
    with pytest.raises(ConfigError, match=r"no column \(0, 'time'\); they have \(0, 'row'\)"):
        ngrams.read_column((0, "time"))
    with pytest.raises(ConfigError, match="no column 5"):
        ngrams.read_column(5)


def test_an_empty_batch_has_the_shapes_of_columns() -> None:
    ngrams = NGramIterator(
        ParquetDataset(FIXTURES / "timeseries"), NGram({1: ["accel"]}, 100, "timestamp")
    )

    assert ngrams.read_batch([])[1]["accel"].shape == (0, 3)


def test_a_batch_reads_shared_rows_once() -> None:
    read: list[int] = []

    def note_reading(number: int) -> int:
        read.append(int(number))
        return number

    rows = make_timed_rows(range(100)).map(note_reading, column="row")
    ngrams = NGramIterator(rows, make_ngram(3))
    # Only timestamps are read to find sequences; the first row may be for the names of columns.
    assert read in ([], [0])
    read.clear()

    ngrams.read_batch(range(20))

    assert sorted(read) == list(range(22))


def test_a_resolved_expression_keeps_its_flags() -> None:
    speed = UnischemaField("speed", np.float32, ())
    time = UnischemaField("time", np.int64, ())
    description = NGram({0: [re.compile("SPEED", re.IGNORECASE)]}, 1, "time")

    description.resolve_regex_field_names(Unischema("Frames", [speed, time]))

    assert description.fields == {0: [speed]}
