"""Single samples of records: the same before and after all blocks are checked, closed or not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from writing import append_all

from data_stack.exception import DatasetFileCorruptError, StorageError
from data_stack.formats.records import ColumnType, RecordReader, RecordWriter
from data_stack.testing.comparing import assert_same

N_SAMPLES = 40

#: A column of each kind that is read in its own way, by name.
VALUES: dict[str, Any] = {
    "array": lambda number: np.full((2, 3), number, np.int16),
    "bool": lambda number: np.array([number % 2 == 0, True]),
    "cast": lambda number: -number,
    "empty": lambda number: np.empty((0, 2), np.float32),
    "int": lambda number: number,
    "ragged": lambda number: np.arange(number % 4, dtype=np.float32),
    "scalar": lambda number: np.float64(number),
    "text": lambda number: f"sample {number}",
}

SPEC: dict[str, str | ColumnType] = {
    "array": ColumnType("array", "int16", (2, 3)),
    "bool": ColumnType("array", "bool", (2,)),
    "cast": ColumnType("i64", "int32"),
    "empty": ColumnType("array", "float32", (0, 2)),
    "int": "int",
    "ragged": ColumnType("array"),
    "scalar": ColumnType("array", "float64", ()),
    "text": "utf8",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    columns = sorted(SPEC)
    written = ({name: VALUES[name](number) for name in columns} for number in range(N_SAMPLES))
    append_all(RecordWriter(tmp_path / "records", SPEC), written)
    return tmp_path / "records"


@pytest.fixture(params=[1, 2, 3, 8])
def reader(folder: Path, request: pytest.FixtureRequest) -> Iterator[RecordReader]:
    """A reader of some columns, as samples of two and three are made in a way of their own."""
    with RecordReader(folder, columns=sorted(SPEC)[: request.param]) as reader:
        yield reader


def test_a_sample_stays_the_same_once_all_blocks_are_checked(reader: RecordReader) -> None:
    first_samples = [reader[number] for number in range(N_SAMPLES)]

    later_samples = [reader[number] for number in range(N_SAMPLES)]

    assert_same(later_samples, first_samples)
    for first, later in zip(first_samples, later_samples, strict=True):
        assert list(later) == list(first)
        assert [type(value) for value in later.values()] == [type(v) for v in first.values()]


@pytest.mark.parametrize("name", sorted(SPEC))
def test_each_kind_of_column_is_read_as_written(folder: Path, name: str) -> None:
    with RecordReader(folder, columns=[name]) as reader:
        for _ in range(3):
            assert_same(reader[7][name], VALUES[name](7))


def test_a_view_reads_what_the_reader_reads(reader: RecordReader) -> None:
    view = reader.shuffle(seed=3)[::2]
    expected = view.__getitems__(range(len(view)))

    for _ in range(3):
        assert_same([view[number] for number in range(len(view))], expected)


def test_writing_into_a_sample_does_not_change_the_next_one(reader: RecordReader) -> None:
    for _ in range(3):
        array = reader[5]["array"]
        assert array.flags.writeable
        array[...] = 77

    assert_same(reader[5]["array"], VALUES["array"](5))


def test_a_released_reader_opens_its_files_again(reader: RecordReader) -> None:
    before = [reader[number] for number in range(3)]

    reader.release()

    assert_same([reader[number] for number in range(3)], before)


def test_a_closed_reader_has_no_samples(reader: RecordReader) -> None:
    for _ in range(3):
        reader[0]

    reader.close()

    with pytest.raises(StorageError, match="is closed"):
        reader[0]


def test_indices_mean_what_they_mean_in_a_list(reader: RecordReader) -> None:
    for _ in range(2):
        assert_same(reader[-1], reader[N_SAMPLES - 1])
        assert_same(reader[np.int64(3)], reader[3])
        for index in (N_SAMPLES, -N_SAMPLES - 1):
            with pytest.raises(IndexError):
                reader[index]


def test_a_damaged_block_stays_an_error(tmp_path: Path) -> None:
    spec = {"row": ColumnType("array", "uint8", (1000,)), "number": ColumnType("i64")}
    rows = ({"row": np.zeros(1000, np.uint8), "number": number} for number in range(200))
    append_all(RecordWriter(tmp_path, spec), rows)
    content = bytearray((tmp_path / "row.bag").read_bytes())
    content[-1] ^= 1  # in the last of four blocks
    (tmp_path / "row.bag").write_bytes(content)

    with RecordReader(tmp_path) as reader:
        for _ in range(3):
            assert reader[0]["number"] == 0
            with pytest.raises(DatasetFileCorruptError, match=r"row\.bag is damaged"):
                reader[199]


def test_threads_read_while_files_are_released(folder: Path) -> None:
    with RecordReader(folder) as reader:
        expected = [reader[number] for number in range(N_SAMPLES)]
        is_done = threading.Event()

        def release_again_and_again() -> None:
            while not is_done.is_set():
                reader.release()

        with ThreadPoolExecutor(3) as threads:
            releasing = threads.submit(release_again_and_again)
            reading = [
                threads.submit(lambda: [reader[number] for number in range(N_SAMPLES)])
                for _ in range(20)
            ]
            samples_read = [future.result() for future in reading]
            is_done.set()
            releasing.result()

    for samples in samples_read:
        assert_same(samples, expected)
