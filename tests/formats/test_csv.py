"""CSV files: typed columns, headers, targets, and errors that name the line."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from writing import resource_of

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.csv import CSVDatasetIterator, read_csv, read_csv_matrix
from data_stack.formats.idx import read_idx
from data_stack.io.resources import StreamedTextResource


def test_decompressing_and_text_streams_are_read_and_left_open() -> None:
    zipped = gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(b"1,2\n3,4\n")))
    stored = resource_of("ä,b\n1,2\n".encode("latin-1"))
    text = StreamedTextResource.from_streamed_resource(stored, encoding="latin-1", newline="")

    matrix, columns = read_csv_matrix(zipped, np.uint8), read_csv(text, {"ä": np.int64})

    assert matrix.dtype == np.uint8
    assert matrix.tolist() == [[1, 2], [3, 4]]
    assert columns["ä"].tolist() == [1]
    assert not zipped.closed
    assert not text.closed


@pytest.mark.parametrize(
    ("text", "dtype", "value"),
    [("5.0", np.uint8, 5), ("5e2", np.int16, 500), ("9007199254740993", np.int64, 9007199254740993), (" 7 ", np.int8, 7),
     ("-9223372036854775808", np.int64, -(2**63)), ("18446744073709551615", np.uint64, 2**64 - 1), ("0.1", np.float64, 0.1),
     ("5e-324", np.float64, 5e-324), ("True", np.bool_, True), ("inf", np.float32, np.inf)],
)  # fmt: skip
def test_numbers_are_read_as_programs_write_them(
    text: str, dtype: npt.DTypeLike, value: Any
) -> None:
    assert read_csv_matrix(io.BytesIO(text.encode()), dtype)[0, 0] == value


@pytest.mark.parametrize(
    ("text", "dtype"),
    [("256", np.uint8), ("-1", np.uint8), ("5.5", np.int64), ("", np.float64),
     ("1_000", np.int64), ("1e300", np.float32), ("nan", np.int64), ("inf", np.int64), ("2", np.bool_), ("9" * 5000, np.int64)],
)  # fmt: skip
def test_a_number_unfit_for_the_type_is_refused_with_place(text: str, dtype: npt.DTypeLike) -> None:
    data = f"1,0\n\n0,{text}\n".encode()

    with pytest.raises(DatasetFileCorruptError, match=r"line 3, column 2"):
        read_csv_matrix(io.BytesIO(data), dtype)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a,b\n1,2,3\n", "line 2: 3 columns, expected 2"),
        (b"a,b\n1,2\n4\n", "line 3: 1 columns, expected 2"),
        (b"", "a header in line 1"),
        (b"a,a\n1,2\n", "2 columns named 'a'"),
        (b"a,b\n\xff\xfe,1\n", "utf-8"),
        (b'a,b\n1,"2\n', "line 2"),
        (b"a,b\n1," + b"x" * 200_000 + b"\n", "line 2"),
        (b'a,b\n1,"' + b"x" * (17 << 20), "longer than"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(data: bytes, message: str) -> None:
    with pytest.raises(DatasetFileCorruptError, match=message):
        read_csv(io.BytesIO(data), {"a": np.float64, "b": np.float64})


def test_unknown_values_become_nan_where_they_are_named() -> None:
    data = b"a,b\n1,?\n,2\n"

    columns = read_csv(io.BytesIO(data), {"a": np.float64, "b": np.float64}, missing={"", "?"})

    assert np.array_equal(
        np.stack(list(columns.values())), [[1, np.nan], [np.nan, 2]], equal_nan=True
    )


def test_without_a_target_samples_are_features() -> None:
    iterator = CSVDatasetIterator(resource_of(b"1,2\n3,4\n"), header=False, target=None)

    (features,) = iterator[1]

    assert (features.dtype, features.tolist()) == (np.float64, [3.0, 4.0])


@pytest.mark.parametrize(("target", "header"), [(2, True), (-3, True), ("b", False)])
def test_a_target_that_cannot_be_is_refused(target: str | int, header: bool) -> None:
    with pytest.raises(ConfigError):
        len(CSVDatasetIterator(resource_of(b"a,b\n1,2\n"), target=target, header=header))


def test_text_in_utf16_is_not_taken_for_utf8() -> None:
    text = "ab,cd\n1,2\n".encode("utf-16-le")

    with pytest.raises(DatasetFileCorruptError, match="pass encoding='utf-16-le'"):
        len(CSVDatasetIterator(resource_of(text)))


# ---------------------------------------------------------------------- IDX


GOLDEN = [
    (
        b"\0\0\x08\x02\0\0\0\x02\0\0\0\x03" + bytes(range(6)),
        np.arange(6, dtype=np.uint8).reshape(2, 3),
    ),
    (b"\0\0\x09\x01\0\0\0\x02\xff\x7f", np.array([-1, 127], np.int8)),
    (b"\0\0\x0b\x01\0\0\0\x02\x01\x02\xff\xfe", np.array([258, -2], np.int16)),
    (b"\0\0\x0c\x01\0\0\0\x01\0\0\x01\0", np.array([256], np.int32)),
    (b"\0\0\x0d\x01\0\0\0\x01\x3f\xc0\0\0", np.array([1.5], np.float32)),
    (b"\0\0\x0e\x01\0\0\0\x01\xc0\x04\0\0\0\0\0\0", np.array([-2.5], np.float64)),
    (b"\0\0\x08\x00\x07", np.array(7, np.uint8)),
    (b"\0\0\x08\x02\0\0\0\0\0\0\0\x05", np.empty((0, 5), np.uint8)),
    (b"\0\0\x08\x02\0\0\0\x05\0\0\0\0", np.empty((5, 0), np.uint8)),
]


@pytest.mark.parametrize(("data", "array"), GOLDEN)
def test_the_published_layout_is_read(data: bytes, array: npt.NDArray[Any]) -> None:
    read = read_idx(io.BytesIO(data))

    assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize("data", [data for data, _ in GOLDEN[1::3]])
def test_a_truncated_or_too_long_file_is_refused(data: bytes) -> None:
    for end in range(len(data)):
        with pytest.raises(DatasetFileCorruptError):
            read_idx(io.BytesIO(data[:end]))
    with pytest.raises(DatasetFileCorruptError, match="has bytes after"):
        read_idx(io.BytesIO(data + b"\0"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x1f\x8b\x08\0",
        b"\0\0\x0a\x01\0\0\0\0",
        b"\0\x01\x08\x01\0\0\0\0",
        b"\0\0\x08\xff" + bytes(4 * 255),
        b"\0\0\x08\x03" + b"\xff" * 8 + bytes(4),
    ],
)
def test_what_is_no_idx_file_is_refused(data: bytes) -> None:
    with pytest.raises(DatasetFileCorruptError):
        read_idx(io.BytesIO(data))


def test_a_header_that_lies_costs_no_memory() -> None:
    data = b"\0\0\x0e\x02" + b"\x10\0\0\0" * 2 + b"some bytes"
    tracemalloc.start()

    with pytest.raises(DatasetFileCorruptError, match="ends within"):
        read_idx(io.BytesIO(data))

    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 8 << 20
