"""Columns of Arrow's tensors in Parquet files: read in their shape, and written again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import data_stack
from data_stack.exception import ConfigError, DataStackError
from data_stack.formats import convert
from data_stack.formats.parquet import Field, ParquetDataset, ParquetWriter, Schema, TensorCodec
from data_stack.formats.parquet.codecs import CellError, NestedCodec

#: Three axes whose order is not that of its own inverse.
SHAPE = (2, 3, 4)
PERMUTATION = [2, 0, 1]


def tensors(
    permutation: list[int] | None = None, *, element: pa.DataType | None = None, n_values: int = 5
) -> pa.ExtensionArray:
    element = element or pa.int32()
    type_ = pa.fixed_shape_tensor(element, SHAPE, permutation=permutation)
    numbers = pa.array(range(n_values * 24), pa.int64()).cast(element)
    return pa.ExtensionArray.from_storage(type_, pa.FixedSizeListArray.from_arrays(numbers, 24))


def with_nulls(cells: pa.ExtensionArray) -> pa.ExtensionArray:
    """Replace the second tensor by null, and an element of the third by a missing one."""
    values = cells.storage.to_pylist()
    values[1] = None
    values[2][7] = None
    return pa.ExtensionArray.from_storage(cells.type, pa.array(values, cells.type.storage_type))


def write(path: Path, cells: pa.Array) -> Path:
    pq.write_table(pa.table({"x": cells, "n": range(len(cells))}), path, row_group_size=2)
    return path


@pytest.mark.parametrize("permutation", [None, PERMUTATION])
def test_tensors_have_their_shape(tmp_path: Path, permutation: list[int] | None) -> None:
    cells = tensors(permutation)
    stored = np.arange(5 * 24).reshape(5, *SHAPE)
    expected = stored if permutation is None else stored.transpose(0, 3, 1, 2)

    rows = ParquetDataset(write(tmp_path / "a.parquet", cells))

    assert rows.schema["x"].shape == expected.shape[1:]
    assert np.array_equal(rows[3]["x"], expected[3])
    assert np.array_equal(rows.read_batch([4, 0, 1])["x"], expected[[4, 0, 1]])
    assert np.array_equal(rows.read_column("x"), expected)
    assert np.array_equal([row["x"] for row in rows], expected)


@pytest.mark.parametrize("permutation", [None, PERMUTATION])
def test_files_of_arrow_and_parquet_give_equal_tensors(
    tmp_path: Path, permutation: list[int] | None
) -> None:
    cells = with_nulls(tensors(permutation))

    of_arrow: Any = data_stack.from_arrow(pa.table({"x": cells}))
    of_parquet = ParquetDataset(write(tmp_path / "a.parquet", cells))

    for position in range(5):
        expected = of_arrow[position]["x"]
        value = of_parquet[position]["x"]
        assert np.array_equal(value, expected)
        assert np.shape(value) == np.shape(expected)
    assert of_parquet[1]["x"] is None
    assert of_parquet[2]["x"].dtype == object


@pytest.mark.parametrize("element", [pa.bool_(), pa.float16(), pa.string(), pa.timestamp("us")])
def test_tensors_of_any_scalars_have_their_shape(tmp_path: Path, element: pa.DataType) -> None:
    cells = tensors(PERMUTATION, element=element)
    order = np.arange(5 * 24).reshape(5, 2, 3, 4).transpose(0, 3, 1, 2)
    scalars = ParquetDataset(write(tmp_path / "flat.parquet", cells.storage.flatten()))
    expected = scalars.read_column("x")[order]

    rows = ParquetDataset(write(tmp_path / "a.parquet", cells))

    assert np.array_equal(rows.read_column("x"), expected)
    assert rows.read_column("x").dtype == expected.dtype


def test_a_tensor_without_axes_is_a_scalar(tmp_path: Path) -> None:
    type_ = pa.fixed_shape_tensor(pa.int16(), [])
    storage = pa.FixedSizeListArray.from_arrays(pa.array([7, 8], pa.int16()), 1)

    rows = ParquetDataset(
        write(tmp_path / "a.parquet", pa.ExtensionArray.from_storage(type_, storage))
    )

    assert rows[1]["x"] == np.int16(8)
    assert rows.read_column("x").tolist() == [7, 8]


@pytest.mark.parametrize("permutation", [None, PERMUTATION])
@pytest.mark.parametrize("has_nulls", [False, True])
def test_converted_tensors_are_tensors(
    tmp_path: Path, permutation: list[int] | None, has_nulls: bool
) -> None:
    cells = tensors(permutation)
    if has_nulls:
        cells = with_nulls(cells)
    write(tmp_path / "a.parquet", cells)

    convert(tmp_path / "a.parquet", tmp_path / "b.parquet")

    (path,) = (tmp_path / "b.parquet").rglob("[!_]*.parquet")
    column = pq.read_table(path)["x"].combine_chunks()
    assert column.type == cells.type
    assert column.storage.to_pylist() == cells.storage.to_pylist()


@pytest.mark.parametrize("permutation", [None, PERMUTATION])
def test_tables_of_tensors_have_the_stored_order(
    tmp_path: Path, permutation: list[int] | None
) -> None:
    cells = with_nulls(tensors(permutation))
    rows = ParquetDataset(write(tmp_path / "a.parquet", cells))

    column = rows.to_arrow()["x"].combine_chunks()

    assert column.type == cells.type
    assert column.storage.to_pylist() == cells.storage.to_pylist()


@pytest.mark.parametrize("permutation", [None, [0, 2, 1]])
def test_a_later_file_of_other_tensors_is_refused(
    tmp_path: Path, permutation: list[int] | None
) -> None:
    write(tmp_path / "a.parquet", tensors(PERMUTATION))
    write(tmp_path / "b.parquet", tensors(permutation))

    rows = ParquetDataset(tmp_path)

    assert rows[4]["x"].shape == (4, 2, 3)
    with pytest.raises(DataStackError, match=r"b\.parquet.*expected tensors of type .*2,0,1"):
        rows[5]


def nested(cells: pa.ExtensionArray) -> dict[str, pa.Array]:
    """Return the tensors in a struct, in a list and in a map; the first struct is null."""
    offsets = pa.array([0, 2, 2, 3, 4, 5], pa.int32())
    return {
        "struct": pa.StructArray.from_arrays(
            [cells, pa.array(range(5))], ["t", "n"], mask=pa.array([True] + [False] * 4)
        ),
        "list": pa.ListArray.from_arrays(offsets, cells),
        "map": pa.MapArray.from_arrays(offsets, pa.array(list("abcde")), cells),
    }


@pytest.mark.parametrize("kind", ["struct", "list", "map"])
@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_tensors_within_other_types_have_their_shape(
    tmp_path: Path, suffix: str, kind: str
) -> None:
    cells = nested(tensors(PERMUTATION))[kind]
    convert(write(tmp_path / "a.parquet", cells), tmp_path / f"b{suffix}")
    expected = np.arange(5 * 24, dtype=np.int32).reshape(5, *SHAPE).transpose(0, 3, 1, 2)

    rows = data_stack.load(tmp_path / f"b{suffix}")

    value = rows[3]["x"]
    tensor = {"struct": lambda: value["t"], "list": lambda: value[0], "map": lambda: value[0][1]}
    assert tensor[kind]().dtype == np.int32
    assert np.array_equal(tensor[kind](), expected[3])


@pytest.mark.parametrize("kind", ["struct", "list", "map"])
def test_converted_tensors_within_other_types_are_tensors(tmp_path: Path, kind: str) -> None:
    cells = nested(with_nulls(tensors(PERMUTATION)))[kind]
    write(tmp_path / "a.parquet", cells)

    convert(tmp_path / "a.parquet", tmp_path / "b.parquet")

    (path,) = (tmp_path / "b.parquet").rglob("[!_]*.parquet")
    column = pq.read_table(path)["x"].combine_chunks()
    assert "permutation=[2,0,1]" in str(column.type)
    assert column.to_pylist() == pq.read_table(tmp_path / "a.parquet")["x"].to_pylist()


def test_a_tensor_of_another_shape_within_a_struct_is_refused() -> None:
    type_ = pa.struct([("t", pa.fixed_shape_tensor(pa.int8(), (2, 3)))])

    with pytest.raises(
        CellError, match=r"key 't': expected an array of shape \(2, 3\), got \(6,\)"
    ):
        NestedCodec(type_).encode(Field("x", object, (), NestedCodec(type_)), {"t": np.zeros(6)})


@pytest.mark.parametrize(
    "content",
    [
        ["int"],
        ["int", 3],
        ["int", [2, -1]],
        ["int", [2, 2.0]],
        ["int", [1 << 20, 1 << 20]],
        ["int", [2, 3], [0, 0]],
        ["int", [2, 3], [0]],
        ["int", [2, 3], [1, 0], 0],
        [{"tensor": 1}, [2]],
    ],
)
def test_a_type_that_describes_no_tensors_is_refused(content: list[Any]) -> None:
    with pytest.raises(ConfigError, match="not a type of a column"):
        NestedCodec({"list": {"tensor": content}})


def test_missing_elements_of_tensors_are_read_as_nan(tmp_path: Path) -> None:
    cells = with_nulls(tensors(element=pa.float32()))
    path = write(tmp_path / "a.parquet", cells)

    rows = ParquetDataset(path, nulls="nan")

    assert rows[2]["x"].dtype == np.float32
    assert np.argwhere(np.isnan(rows[2]["x"])).tolist() == [[0, 1, 3]]


def test_a_writer_stores_tensors_that_a_schema_declares(tmp_path: Path) -> None:
    schema = Schema("s", [Field("x", "uint8", (2, 3), TensorCodec(permutation=(1, 0)))])
    values = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)

    with ParquetWriter(tmp_path / "d", schema) as writer:
        writer.append_columns({"x": values[:2]})
        writer.append({"x": values[2].tolist()})
        writer.append({"x": values[3]})

    rows = ParquetDataset(tmp_path / "d")
    assert rows.schema == schema
    assert np.array_equal(rows.read_column("x"), values)
    (path,) = (tmp_path / "d").rglob("[!_]*.parquet")
    assert np.array_equal(pq.read_table(path)["x"].chunk(0).to_numpy_ndarray(), values)


@pytest.mark.parametrize("value", [np.zeros((3, 2)), np.full((2, 3), 300), None, "text"])
def test_a_writer_refuses_what_is_no_such_tensor(tmp_path: Path, value: Any) -> None:
    schema = Schema("s", [Field("x", "uint8", (2, 3), TensorCodec())])

    with (
        pytest.raises(DataStackError, match="x"),
        ParquetWriter(tmp_path / "d", schema) as writer,
    ):
        writer.append({"x": value})


def test_invalid_codecs_of_tensors_say_why() -> None:
    with pytest.raises(ConfigError, match="each axis once"):
        TensorCodec(permutation=[0, 0])
    with pytest.raises(ConfigError, match="does not fit the shape"):
        Field("x", "uint8", (2, 3), TensorCodec(permutation=[0]))
    with pytest.raises(ConfigError, match="arrays of one shape"):
        Field("x", "uint8", (None, 3), TensorCodec())
