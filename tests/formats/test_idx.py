"""IDX files: golden bytes, round trips, damage, and the iterator over them."""

from __future__ import annotations

import io
import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.idx import read_idx, write_idx

GOLDEN = [
    (b"\0\0\x08\x02\0\0\0\x02\0\0\0\x03" + bytes(range(6)), np.arange(6, dtype=np.uint8).reshape(2, 3)),
    (b"\0\0\x09\x01\0\0\0\x02\xff\x7f", np.array([-1, 127], np.int8)),
    (b"\0\0\x0b\x01\0\0\0\x02\x01\x02\xff\xfe", np.array([258, -2], np.int16)),
    (b"\0\0\x0c\x01\0\0\0\x01\0\0\x01\0", np.array([256], np.int32)),
    (b"\0\0\x0d\x01\0\0\0\x01\x3f\xc0\0\0", np.array([1.5], np.float32)),
    (b"\0\0\x0e\x01\0\0\0\x01\xc0\x04\0\0\0\0\0\0", np.array([-2.5], np.float64)),
    (b"\0\0\x08\x00\x07", np.array(7, np.uint8)),
    (b"\0\0\x08\x02\0\0\0\0\0\0\0\x05", np.empty((0, 5), np.uint8)),
    (b"\0\0\x08\x02\0\0\0\x05\0\0\0\0", np.empty((5, 0), np.uint8)),
]


def written(array: npt.NDArray[Any]) -> bytes:
    file = io.BytesIO()
    write_idx(file, array)
    return file.getvalue()


@pytest.mark.parametrize(("data", "array"), GOLDEN)
def test_the_published_layout_is_read_and_written(data: bytes, array: npt.NDArray[Any]) -> None:
    read = read_idx(io.BytesIO(data))

    assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert written(array) == data


@pytest.mark.parametrize("dtype", [np.int64, np.uint16, np.complex64, "U3"])
def test_a_dtype_that_idx_lacks_is_refused(dtype: npt.DTypeLike) -> None:
    with pytest.raises(ValueError, match="IDX cannot store dtype"):
        write_idx(io.BytesIO(), np.zeros(3, dtype))


@pytest.mark.parametrize("data", [data for data, _ in GOLDEN[1::3]])
def test_a_file_cut_anywhere_or_longer_than_it_says_is_refused(data: bytes) -> None:
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
