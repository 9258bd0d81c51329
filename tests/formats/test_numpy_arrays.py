"""NumPy files: golden bytes, round trips, damage, lying headers, and reads by row."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from writing import bytes_of, resource_of

from data_stack import load
from data_stack.codecs.npy import NpyCodec
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.numpy_arrays import (
    NpzDatasetIterator,
    NumpyDatasetIterator,
    read_npy,
    read_npz,
    write_npy,
)

ARRAYS = npst.arrays(
    # names in ASCII: numpy warns of its own format 3
    npst.scalar_dtypes() | npst.array_dtypes(max_size=3).filter(lambda dtype: str(dtype).isascii()),
    npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
).filter(lambda array: not array.dtype.hasobject)


def written(array: npt.NDArray[Any]) -> bytes:
    return bytes_of(write_npy, array)


def raw_npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode("latin-1") + b"\n"
    return (
        b"\x93NUMPY"
        + version
        + struct.pack("<H" if version[0] == 1 else "<I", len(text))
        + text
        + data
    )


@pytest.mark.parametrize(
    "descr",
    ["'|S0'", "'<U0'", "'|V0'", "[('a', '|S0'), ('b', '<U0')]", "('<i4', (0,))", "('<i4', (2,))"],
)
def test_dtypes_without_bytes_of_their_own_are_refused(descr: str) -> None:
    data = raw_npy(f"{{'descr': {descr}, 'fortran_order': False, 'shape': (1000,), }}")

    check_refused(data, "cannot be values of an array")
    with pytest.raises(DatasetFileCorruptError, match="cannot be values of an array"):
        NpyCodec().decode(data)


def check_refused(data: bytes, message: str = ".") -> None:
    for read in (
        lambda: read_npy(io.BytesIO(data)),
        lambda: len(NumpyDatasetIterator([resource_of(data)])),
    ):
        with pytest.raises(DatasetFileCorruptError, match=message):
            read()


@given(ARRAYS, st.sampled_from("CF"))
def test_what_numpy_wrote_is_read_back_bit_by_bit(array: npt.NDArray[Any], order: Any) -> None:
    data = bytes_of(np.save, np.asarray(array, order=order), allow_pickle=False)

    read = read_npy(io.BytesIO(data))

    assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_a_file_cut_anywhere_is_refused() -> None:
    data = written(np.arange(4, dtype=np.int16))

    for end in range(len(data)):
        check_refused(data[:end])
    with pytest.raises(DatasetFileCorruptError, match="its header says"):
        len(NumpyDatasetIterator([resource_of(data + b"\0")]))


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1," * 33 + "), }",
        "{'descr': 'nonsense', 'fortran_order': False, 'shape': (1,), }",
        "__import__('os').mkdir('/tmp/executed')",
        "[" * 5000 + "]" * 5000,
        "\0",
    ],
)
def test_a_lying_or_invalid_header_is_refused_without_using_memory(header: str) -> None:
    data = raw_npy(header, b"x" * 64)
    tracemalloc.start()

    check_refused(data)

    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 32 << 20


class TestNpz:
    def test_no_flipped_bit_or_cut_changes_a_value(self) -> None:
        data, n_refused = bytes_of(np.savez_compressed, a=np.arange(5, dtype=np.int16)), 0

        for position in range(len(data)):
            flipped = (
                data[:position] + bytes([data[position] ^ 1 << position % 8]) + data[position + 1 :]
            )
            for damaged in (flipped, data[:position]):
                try:
                    arrays = list(read_npz(io.BytesIO(damaged)).values())
                    # flags, dates and names have no digest; the values have
                    assert not arrays or arrays[0].tolist() == [0, 1, 2, 3, 4]
                except DatasetFileCorruptError:
                    n_refused += 1

        assert n_refused > len(data)

    def test_a_member_that_expands_absurdly_is_refused_unless_trusted(self) -> None:
        file = io.BytesIO(bytes_of(np.savez_compressed, a=np.zeros(80 << 20, np.uint8)))

        with pytest.raises(DatasetFileCorruptError, match="max_expansion=None"):
            read_npz(file)

        assert read_npz(file, max_expansion=None)["a"].shape == (80 << 20,)

    def test_a_file_without_arrays_says_so(self, tmp_path: Path) -> None:
        path = tmp_path / "empty.npz"
        np.savez(path)

        with pytest.raises(ConfigError, match=r"empty\.npz contains no arrays"):
            load(path)

    def test_a_column_of_a_file_without_arrays_is_refused(self) -> None:
        file = io.BytesIO(bytes_of(np.savez))

        with pytest.raises(DatasetFileCorruptError, match="no column 'a'; it has no arrays"):
            NpzDatasetIterator(file, ["a"])[0]

    def test_a_name_that_occurs_twice_is_refused(self) -> None:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a.npy", written(np.zeros(1)))
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr("a.npy", written(np.ones(1)))

        with pytest.raises(DatasetFileCorruptError, match="twice"):
            read_npz(file)
