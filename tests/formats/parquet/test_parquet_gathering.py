"""Batches put together out of several row groups: in one pass or one after the other, with the same result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator.access import access_to
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.parquet.columns import ArrayColumn, ObjectColumn, objects
from data_stack.formats.parquet.gathering import Gathering
from data_stack.formats.parquet.selection import Located

_DTYPES = ["?", "i1", "<i2", ">i4", "i8", "f2", "f4", "f8", "c16", "M8[ns]", "S3", "U2"]
_SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (16,), (2, 5), (17, 31), (64, 70)]


def located(lengths: list[int], n_rows: int, seed: int) -> Located:
    """Rows at random, of row groups of these lengths."""
    rng = np.random.default_rng(seed)
    which = rng.integers(0, len(lengths), n_rows)
    return Located(list(range(len(lengths))), which, (rng.random(n_rows) * np.array(lengths)[which]).astype(np.int64))


def array_of(dtype: str, shape: tuple[int, ...], length: int, gap: int, seed: int) -> npt.NDArray[Any]:
    """Rows with a gap behind each, which begin at any byte of their memory."""
    row_bytes = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=int))
    memory = np.random.default_rng(seed).integers(0, 2 if dtype == "?" else 60, gap + length * (row_bytes + gap), np.uint8)
    rows = memory[gap:].reshape(length, row_bytes + gap)[:, :row_bytes]
    array: npt.NDArray[Any] = np.ndarray((length, *shape), dtype, memory, gap, (rows.strides[0], *np.empty(shape, dtype).strides))
    return array


def expected(arrays: list[npt.NDArray[Any]], where: Located) -> npt.NDArray[Any]:
    assert where.which is not None
    return np.array([arrays[number][row] for number, row in zip(where.which, where.rows, strict=True)], arrays[0].dtype)


@given(
    st.sampled_from(_DTYPES),
    st.sampled_from(_SHAPES),
    st.lists(st.integers(1, 40), min_size=2, max_size=5),
    st.sampled_from([0, 0, 1, 8, 128]),
    st.integers(1, 60),
    st.integers(0, 99),
)
def test_rows_of_several_arrays_are_gathered_as_if_one_by_one(
    dtype: str, shape: tuple[int, ...], lengths: list[int], gap: int, n_rows: int, seed: int
) -> None:
    arrays = [array_of(dtype, shape, length, gap, seed + number) for number, length in enumerate(lengths)]
    where = located(lengths, n_rows, seed)
    batch = Gathering(where)

    assert batch.copy({number: ArrayColumn(array) for number, array in enumerate(arrays)})

    column = batch.column()
    assert (column.dtype, column.shape) == (arrays[0].dtype, (n_rows, *shape))
    assert column.tobytes() == expected(arrays, where).tobytes()
    assert column.flags.writeable
    assert column.flags.c_contiguous
    assert not any(np.may_share_memory(column, array) for array in arrays)


@given(st.permutations(range(5)), st.integers(1, 4), st.integers(0, 99))
def test_row_groups_may_come_in_any_order_and_in_parts(order: list[int], n_first: int, seed: int) -> None:
    arrays = [np.random.default_rng(number).random((10 + number, 3)) for number in range(5)]
    where = located([len(array) for array in arrays], 40, seed)
    batch = Gathering(where)

    assert batch.copy({number: ArrayColumn(arrays[number]) for number in order[:n_first]})
    assert batch.copy({number: ArrayColumn(arrays[number]) for number in order[n_first:]})

    assert batch.column().tolist() == expected(arrays, where).tolist()


def test_what_is_more_than_copying_is_left_to_be_put_together() -> None:
    where = located([4, 4], 10, 0)
    numbers = ArrayColumn(np.arange(4))

    assert not Gathering(where).copy({0: numbers, 1: ObjectColumn(objects([1, None, 2, 3]))})
    assert not Gathering(where).copy({0: numbers, 1: ArrayColumn(np.arange(4.0))})
    assert not Gathering(where).copy({0: numbers, 1: ArrayColumn(np.zeros((4, 1), int))})
    assert not Gathering(where).copy({0: ArrayColumn(objects([1, 2, 3, 4])), 1: ArrayColumn(objects([1, 2, 3, 4]))})
    assert not Gathering(where).copy({0: ArrayColumn(np.zeros((4, 0))), 1: ArrayColumn(np.zeros((4, 0)))})


def test_columns_that_change_their_form_on_the_way_are_stacked_as_values() -> None:
    where = Located([0, 1, 2], np.array([2, 0, 1, 0]), np.array([1, 0, 1, 2]))
    batch = Gathering(where)

    assert batch.copy({0: ArrayColumn(np.array([1, 2, 3]))})
    wide = ArrayColumn(np.array([4.5, 5.5]))
    assert not batch.copy({1: wide})
    batch.put(1, wide.take(where.part(1)[0]))
    assert not batch.copy({2: ArrayColumn(np.array([6, 7]))})
    batch.put(2, np.array([7]))

    assert batch.column().tolist() == [7, 1, 5.5, 3]


def test_positions_outside_are_an_error_before_anything_is_gathered(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": np.arange(100)}), tmp_path / "a.parquet", row_group_size=10)
    dataset = ParquetDataset(tmp_path)

    for outside in (-1, 100):
        with pytest.raises(IndexError, match=f"none at {outside}"):
            access_to(dataset).batch(np.array([5, 55, outside]))
