"""Which row groups a filter reads: those that their bounds and NaN do not exclude."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from data_stack.formats.parquet import ParquetDataset, col
from data_stack.formats.parquet.arrow_predicate import could_match
from data_stack.formats.parquet.files import find_files
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.inference import read_schema
from data_stack.formats.parquet.row_groups import RowGroups

NAN = float("nan")
#: Three row groups of x: from 0 to 1, with NaN; from 5 to 6; and nulls only.
X = [0.0, 1.0, NAN, 5.0, 6.0, 5.5, None, None, None]
Y = [0.0, 0.5, 0.0, NAN, 9.0, 9.0, 2.0, 2.0, 2.0]


@pytest.fixture(params=[pa.float64(), pa.float32()], ids=str)
def folder(tmp_path: Path, request: Any) -> Path:
    table = pa.table(
        {
            "row": pa.array(range(9)),
            "x": pa.array(X, request.param),
            "y": pa.array(Y, request.param),
            "name": pa.array(["a", "a", "a", "b", "b", "b", "c", "c", "c"]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    return tmp_path


def groups_to_read(folder: Path, expression: pc.Expression, names: list[str]) -> list[int]:
    footers = Footers(find_files(folder))
    groups = RowGroups(footers, read_schema(footers))
    types = pa.schema([(name, groups.schema[name].arrow_type()) for name in names])
    alternatives = [groups.guarantee_alternatives(group, types) for group in range(len(footers))]
    is_match = could_match(expression, types, alternatives)
    return [int(group) for group in np.flatnonzero(is_match)]


@pytest.mark.parametrize(
    ("expression", "names", "expected"),
    [
        (col("x") > 3, ["x"], [1]),
        (col("x") < 3, ["x"], [0]),
        (~(col("x") > 3), ["x"], [0, 1]),  # NaN is not greater than 3
        ((col("x") > 3) & (col("y") > 3), ["x", "y"], [1]),
        ((col("x") > 3) | (col("name") == "c"), ["name", "x"], [1, 2]),
        (col("x").isin([5.5, 7.0]), ["x"], [1]),
    ],
)
def test_bounds_of_floats_exclude_row_groups(
    folder: Path, expression: pc.Expression, names: list[str], expected: list[int]
) -> None:
    assert groups_to_read(folder, expression, names) == expected


@pytest.mark.parametrize(
    "expression",
    [
        col("x") > 3,
        ~(col("x") > 3),
        col("x") != 5.5,
        col("x").is_nan(),
        col("x").is_null(nan_is_null=True),
        ~((col("x") > 3) & (col("y") < 9)),
        (col("x") > 3) | (col("y") == 2),
        col("x").isin([5.5, NAN]),
        pc.if_else(col("x") > 3, False, True),
    ],
    ids=str,
)
def test_excluded_row_groups_have_no_rows_that_pyarrow_selects(
    folder: Path, expression: pc.Expression
) -> None:
    in_memory = pq.read_table(folder / "a.parquet")
    expected = in_memory.filter(expression)["row"].to_pylist()

    dataset = ParquetDataset(folder, columns=["row"], filters=expression)

    assert dataset.read_column("row").tolist() == expected


def test_a_number_that_single_precision_rounds_is_found(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([0.1, 0.1], pa.float32())})
    pq.write_table(table, tmp_path / "a.parquet")

    dataset = ParquetDataset(tmp_path, filters=col("x").isin([0.1]))

    assert len(dataset) == table.filter(col("x").isin([0.1])).num_rows == 2
