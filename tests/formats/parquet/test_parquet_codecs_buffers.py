"""Numbers and nulls out of Arrow's buffers: equal to what pyarrow makes of them, and without pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.formats.parquet.codecs.buffers import null_mask, numbers

TYPES = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float64()),
]


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_numbers_are_those_of_pyarrow(type_: pa.DataType) -> None:
    cells = pa.array(range(100), type_).slice(13, 50)

    found = numbers(cells)

    assert found.dtype == cells.to_numpy().dtype
    assert np.array_equal(found, np.arange(13, 63))


def test_half_floats_are_read() -> None:
    cells = pa.array(np.arange(9, dtype=np.float16)).slice(3)

    assert numbers(cells).tolist() == [3, 4, 5, 6, 7, 8]
    assert numbers(cells).dtype == np.float16


@given(values=st.lists(st.booleans(), max_size=70), start=st.integers(0, 70), length=st.integers(0, 70))
def test_booleans_are_read_wherever_a_slice_begins(values: list[bool], start: int, length: int) -> None:
    cells = pa.array(values, pa.bool_()).slice(min(start, len(values)), length)

    assert numbers(cells).tolist() == cells.to_pylist()


@given(values=st.lists(st.none() | st.integers(0, 9), max_size=70), start=st.integers(0, 70), length=st.integers(0, 70))
def test_nulls_are_found_wherever_a_slice_begins(values: list[int | None], start: int, length: int) -> None:
    start = min(start, len(values))
    for type_ in (pa.int16(), pa.string(), pa.list_(pa.int8())):
        made: Any = {"string": str, "list<item: int8>": lambda value: [value]}.get(str(type_), int)
        whole: list[Any] = [None if value is None else made(value) for value in values]
        cells = pa.array(whole, type_).slice(start, length)

        assert null_mask(cells).tolist() == [value is None for value in cells.to_pylist()]


def test_nulls_of_types_without_a_bitmap_are_found() -> None:
    of_dictionary = pa.array(["a", None, "a"]).dictionary_encode()
    nothing = pa.nulls(3)

    assert null_mask(of_dictionary).tolist() == [False, True, False]
    assert null_mask(nothing).tolist() == [True] * 3
    assert null_mask(pa.array([1.0, float("nan")])).tolist() == [False, False]


def test_reading_numbers_lists_and_times_imports_no_pandas(tmp_path: Path) -> None:
    columns = {
        "number": [1, None, 3],
        "flag": [True, False, None],
        "list": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        "time": pa.array([0, 1, None], pa.timestamp("us")),
        "raw": [b"a", None, b"c"],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    program = f"""
import sys
from data_stack.formats.parquet import ParquetDataset

dataset = ParquetDataset({str(tmp_path)!r}, columns=["number", "flag", "list", "time"])
batch = dataset.read_batch([0, 1, 2])
print(batch["list"].shape, batch["number"][1], "pandas" in sys.modules)
"""

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)

    assert result.stdout == "(3, 2) None False\n"
