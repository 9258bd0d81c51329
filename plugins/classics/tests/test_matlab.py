"""Files of MATLAB are read as SciPy writes them; what is no array of real numbers is refused."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from data_stack_classics.matlab import iterate_arrays
from scipy.io import savemat
from writing import bytes_of

from data_stack.exception import DatasetFileCorruptError

CLASS_OF_DOUBLES = 6


def file_of(value: Any, *, is_compressed: bool = False) -> io.BytesIO:
    """Return a file with one variable ``x``."""
    return io.BytesIO(bytes_of(savemat, {"x": value}, do_compression=is_compressed))


def element(kind: int, data: bytes) -> bytes:
    """Return an element whose data follows its tag."""
    padding = bytes(-len(data) % 8)
    return struct.pack("<II", kind, len(data)) + data + padding


def file_with(*, shape: bytes, values: bytes) -> io.BytesIO:
    """Return a file with one variable of doubles, made of the elements of its shape and values."""
    header = io.BytesIO(bytes_of(savemat, {})).read(128)
    flags = element(6, bytes([CLASS_OF_DOUBLES, 0, 0, 0, 0, 0, 0, 0]))
    name = element(1, b"x")
    return io.BytesIO(header + element(14, flags + shape + name + values))


@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "i8", "f4", "f8", "?"])
def test_an_array_of_numbers_is_read(dtype: str, is_compressed: bool) -> None:
    array = np.arange(2, 14).reshape(4, 3).astype(dtype)

    stored = next(iterate_arrays(file_of(array, is_compressed=is_compressed), "a.mat"))
    data = stored.stream.read(array.size * stored.dtype.itemsize)
    values = np.frombuffer(data, stored.dtype).reshape(stored.shape, order="F")

    assert stored.name == "x"
    assert np.array_equal(values, array)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"a": 1}, id="structure"),
        pytest.param("text", id="text"),
        pytest.param(np.array([1 + 2j, 3]), id="complex"),
        pytest.param(np.array([1, "a"], object), id="cell"),
        pytest.param(scipy.sparse.csc_matrix(np.eye(2)), id="sparse"),
    ],
)
def test_what_is_no_array_of_real_numbers_is_an_error(value: Any) -> None:
    with pytest.raises(DatasetFileCorruptError, match="variable 'x' of class"):
        list(iterate_arrays(file_of(value), "a.mat"))


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        pytest.param(element(5, b"\1\0\0"), element(9, bytes(8)), id="three bytes"),
        pytest.param(element(5, b""), element(9, bytes(8)), id="nothing"),
        pytest.param(element(5, struct.pack("<ii", -2, -2)), element(9, bytes(32)), id="negative"),
        pytest.param(struct.pack("<HH", 5, 5) + bytes(4), element(9, bytes(8)), id="long tag"),
        pytest.param(
            element(5, struct.pack("<ii", 1, 1)), element(14, bytes(8)), id="array of arrays"
        ),
        pytest.param(element(5, struct.pack("<ii", 1, 2)), element(9, bytes(8)), id="one of two"),
    ],
)
def test_a_damaged_variable_is_an_error(shape: bytes, values: bytes) -> None:
    with pytest.raises(DatasetFileCorruptError, match=r"'a\.mat' (is damaged|has)"):
        list(iterate_arrays(file_with(shape=shape, values=values), "a.mat"))


def test_a_file_cut_off_before_the_values_is_an_error() -> None:
    whole = file_of(np.zeros((2, 3))).getvalue()
    end_of_name = 128 + 8 + 16 + 16 + 8

    for n_bytes in range(129, end_of_name):
        with pytest.raises(DatasetFileCorruptError, match="truncated"):
            list(iterate_arrays(io.BytesIO(whole[:n_bytes]), "a.mat"))
