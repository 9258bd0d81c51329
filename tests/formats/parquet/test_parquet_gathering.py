"""Batches put together out of several row groups, in whatever order these come."""

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
from data_stack.formats.parquet.gathering import Gathering
from data_stack.formats.parquet.selection import Located


def located(lengths: list[int], n_rows: int, seed: int) -> Located:
    """Rows at random, of row groups of these lengths."""
    rng = np.random.default_rng(seed)
    which = rng.integers(0, len(lengths), n_rows)
    return Located(list(range(len(lengths))), which, (rng.random(n_rows) * np.array(lengths)[which]).astype(np.int64))


def expected(arrays: list[npt.NDArray[Any]], where: Located) -> npt.NDArray[Any]:
    assert where.which is not None
    return np.array([arrays[number][row] for number, row in zip(where.which, where.rows, strict=True)], arrays[0].dtype)


@given(st.permutations(range(5)), st.sampled_from(["i8", ">i4", "f4", "M8[ns]", "U2"]), st.integers(0, 99))
def test_row_groups_may_come_in_any_order(order: list[int], dtype: str, seed: int) -> None:
    arrays = [np.random.default_rng(number).integers(0, 60, (10 + number, 3)).astype(dtype) for number in range(5)]
    where = located([len(array) for array in arrays], 40, seed)
    batch = Gathering(where)

    for number in order:
        batch.put(number, arrays[number][where.part(number)[0]])

    column = batch.column()
    assert column.tolist() == expected(arrays, where).tolist()
    assert (column.dtype, column.flags.writeable) == (arrays[0].dtype, True)


def test_columns_that_change_their_form_on_the_way_are_stacked_as_values() -> None:
    where = Located([0, 1, 2], np.array([2, 0, 1, 0]), np.array([1, 0, 1, 2]))
    batch = Gathering(where)

    batch.put(0, np.array([1, 3]))
    batch.put(1, np.array([5.5]))
    batch.put(2, np.array([7]))

    assert batch.column().tolist() == [7, 1, 5.5, 3]


def test_positions_outside_are_an_error_before_anything_is_gathered(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": np.arange(100)}), tmp_path / "a.parquet", row_group_size=10)
    dataset = ParquetDataset(tmp_path)

    for outside in (-1, 100):
        with pytest.raises(IndexError, match=f"none at {outside}"):
            access_to(dataset).batch(np.array([5, 55, outside]))
