"""Cells of every type of Arrow: a sample, a batch and a column have the same values."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fuzz_readings import same
from hypothesis import given
from table_strategies import compared, exact_rows, tables

import data_stack
from data_stack.dataset.iterator import access_to
from data_stack.exception import ConfigError, RequestLimitError
from data_stack.formats.arrow_ipc import ArrowDataset
from data_stack.formats.arrow_tables import readable_cells as module_of_cells

IDS = [uuid.UUID(int=number).bytes for number in range(4)]
VIEWED_LISTS = pa.ListViewArray.from_arrays(
    pa.array([3, 0, 2, 0], pa.int32()),
    pa.array([2, 3, 0, 1], pa.int32()),
    pa.array([1, 2, None, 4, 5], pa.int16()),
)
RUNS = pa.RunEndEncodedArray.from_arrays(
    pa.array([1, 3, 4], pa.int32()), pa.array(["a", None, "b"])
)

#: Four cells of types that pyarrow takes no single rows of, and the values that samples have.
CELLS: dict[str, tuple[pa.Array, list[Any]]] = {
    "uuid": (pa.array(IDS, pa.uuid()), IDS),
    "uuid with null": (pa.array([None, *IDS[1:]], pa.uuid()), [None, *IDS[1:]]),
    "list of uuid": (
        pa.ListArray.from_arrays(pa.array(range(5), pa.int32()), pa.array(IDS, pa.uuid())),
        [[value] for value in IDS],
    ),
    "struct of uuid": (
        pa.StructArray.from_arrays([pa.array(IDS, pa.uuid())], ["a"]),
        [{"a": value} for value in IDS],
    ),
    "view of text": (
        pa.array(["a", None, "b" * 30, ""], pa.string_view()),
        ["a", None, "b" * 30, ""],
    ),
    "list of views": (
        pa.array([["a"], ["b" * 30], [], [""]], pa.list_(pa.string_view())),
        [["a"], ["b" * 30], [], [""]],
    ),
    "struct of views": (
        pa.array(
            [{"a": b"x"}, None, {"a": None}, {"a": b"y" * 30}], pa.struct([("a", pa.binary_view())])
        ),
        [{"a": b"x"}, None, {"a": None}, {"a": b"y" * 30}],
    ),
    "dictionary of views": (
        pa.DictionaryArray.from_arrays(
            pa.array([0, 1, None, 0], pa.int8()), pa.array(["a", "b"], pa.string_view())
        ),
        ["a", "b", None, "a"],
    ),
    "dictionary of lists": (
        pa.DictionaryArray.from_arrays(
            pa.array([0, 1, None, 0], pa.int8()), pa.array([[1, 2], None], pa.list_(pa.int8()))
        ),
        [[1, 2], None, None, [1, 2]],
    ),
    "map of views": (
        pa.array([[("a", 1)], None, [], [("b", 2)]], pa.map_(pa.string_view(), pa.int8())),
        [[("a", 1)], None, [], [("b", 2)]],
    ),
    "views of lists": (VIEWED_LISTS, [[4, 5], [1, 2, None], [], [1]]),
    "views of lists with null": (
        pa.array([[1], None, [2, 3], []], pa.large_list_view(pa.int16())),
        [[1], None, [2, 3], []],
    ),
    "views of lists of text": (
        pa.array([["a"], [], ["b", None], ["c"]], pa.list_view(pa.string())),
        [["a"], [], ["b", None], ["c"]],
    ),
    "views of lists of views": (
        pa.array([[[1], [2]], None, [], [[3]]], pa.list_view(pa.list_view(pa.int16()))),
        [[[1], [2]], None, [], [[3]]],
    ),
    "runs of text": (RUNS, ["a", None, None, "b"]),
    "runs of numbers": (
        pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int16()), pa.array([7, 8])),
        [7, 7, 8, 8],
    ),
    "runs of bools": (
        pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int64()), pa.array([True, None])),
        [True, True, None, None],
    ),
}
if hasattr(pa, "json_"):  # since version 19 of pyarrow
    CELLS["json"] = (pa.array(['{"a": 1}'] * 4).cast(pa.json_()), ['{"a": 1}'] * 4)


def plain(value: Any) -> Any:
    """Return a value of a sample as plain Python."""
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def written(path: Path, table: pa.Table, **options: Any) -> Path:
    with pa.ipc.new_stream(
        str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)
    ) as writer:
        writer.write_table(table, max_chunksize=3)
    return path


def check_agreement(rows: Any) -> list[dict[str, Any]]:
    """Check that all ways of reading return the same values, and return the samples."""
    samples = list(rows)
    n_samples = len(rows)
    assert same([rows[position] for position in range(n_samples)], samples)
    assert same(rows.__getitems__(range(n_samples)), samples)
    batch = rows.read_batch(np.arange(n_samples))
    for name, column in batch.items():
        assert same(rows.read_column(name), column), name
        assert same(rows.read_column(name, np.arange(n_samples)), column), name
        for position, sample in enumerate(samples):
            assert same(plain(column[position]), plain(sample[name])), (name, position)
    declared = access_to(rows).declare_columns() or {}
    for name, column in batch.items():
        if declared[name].is_fixed and n_samples:
            assert (column.dtype.name, column.shape[1:]) == declared[name][:2], name
    return samples


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_types_that_pyarrow_cannot_take_are_read(
    tmp_path: Path, name: str, compression: str | None
) -> None:
    cells, values = CELLS[name]
    table = pa.table({"x": cells})

    for rows in (
        data_stack.from_arrow(table),
        ArrowDataset(written(tmp_path / "a.arrow", table, compression=compression)),
    ):
        samples = check_agreement(rows)
        assert same([plain(sample["x"]) for sample in samples], values)


@pytest.mark.parametrize("name", CELLS)
def test_slices_of_such_cells_are_read(name: str) -> None:
    cells, values = CELLS[name]
    chunks = pa.chunked_array([cells.slice(1, 2), cells.slice(3), cells.slice(0, 0)])

    samples = check_agreement(data_stack.from_arrow(pa.table({"x": chunks})))

    assert same([plain(sample["x"]) for sample in samples], values[1:])


@pytest.mark.parametrize("name", CELLS)
def test_such_cells_go_back_to_arrow(name: str) -> None:
    cells, _ = CELLS[name]

    table = data_stack.to_arrow(data_stack.from_arrow(pa.table({"x": cells})))

    column = table.column("x")
    expected_type = cells.type
    if not module_of_cells.is_made_back(cells.type):
        expected_type = module_of_cells.readable_type(cells.type)
    assert column.type == expected_type
    assert column.to_pylist() == cells.to_pylist()


def test_dictionaries_that_pyarrow_cannot_join_are_values() -> None:
    chunks = []
    for names in (["a", None], [None, "b"]):
        chunks.append(pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(names)))
    table = pa.table({"x": pa.chunked_array(chunks)})

    samples = check_agreement(data_stack.from_arrow(table))

    assert [sample["x"] for sample in samples] == ["a", None, None, "b"]
    with pytest.raises(ConfigError, match="'x' has no class numbers"):
        data_stack.from_arrow(table, target="x")


def test_a_table_goes_back_without_a_copy(tmp_path: Path) -> None:
    table = pa.table({"n": np.arange(100_000), "t": ["text"] * 100_000, "v": [[1.0]] * 100_000})
    in_memory = data_stack.from_arrow(table)
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    in_file: Any = data_stack.load(str(tmp_path / "a.arrow"))
    allocated = pa.total_allocated_bytes()

    tables = [data_stack.to_arrow(in_memory), data_stack.to_arrow(in_file)]

    assert pa.total_allocated_bytes() - allocated < table.nbytes / 100
    assert all(result == table for result in tables)
    assert data_stack.to_arrow(in_memory[[3, 1]]) == table.take([3, 1])


def test_text_that_is_no_utf8_does_not_become_a_table(tmp_path: Path) -> None:
    path = written(tmp_path / "a.arrow", pa.table({"t": ["abc", "xyz"]}))
    path.write_bytes(path.read_bytes().replace(b"xyz", b"x\xff\xff"))

    with pytest.raises(ConfigError, match="UTF8"):
        data_stack.to_arrow(ArrowDataset(path))


@compared
@given(table=tables())
def test_samples_batches_and_columns_of_any_type_agree(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table
) -> None:
    path = tmp_path_factory.mktemp("files") / "a.arrow"

    in_memory = data_stack.from_arrow(table)
    in_file = ArrowDataset(written(path, table))

    assert same(check_agreement(in_memory), check_agreement(in_file))
    assert exact_rows(data_stack.to_arrow(in_memory)) == exact_rows(table)


@pytest.mark.parametrize(
    "cells",
    [
        pa.StructArray.from_arrays([RUNS], ["a"]),
        pa.ListArray.from_arrays(pa.array([0, 4]), VIEWED_LISTS),
        pa.array([pa.MonthDayNano((1, 2, 3))]),
    ],
    ids=["struct of runs", "list of views of lists", "interval"],
)
def test_types_within_others_are_refused_by_name(tmp_path: Path, cells: pa.Array) -> None:
    table = pa.table({"bad": cells})

    with pytest.raises(ConfigError, match=r"'bad' has the unsupported type"):
        data_stack.from_arrow(table)
    with pytest.raises(ConfigError, match=r"'bad' has the unsupported type"):
        ArrowDataset(written(tmp_path / "a.arrow", table))


@pytest.mark.parametrize("n_chunks", [0, 1, 2])
@pytest.mark.parametrize(
    "values",
    [pa.large_string(), pa.decimal128(5, 1), pa.duration("s")],
    ids=str,
)
def test_dictionaries_without_rows_are_a_column(values: pa.DataType, n_chunks: int) -> None:
    type_ = pa.dictionary(pa.int8(), values)
    table = pa.table({"x": pa.chunked_array([pa.nulls(0, type_)] * n_chunks, type_)})

    rows = data_stack.from_arrow(table)

    assert len(rows.read_column("x")) == 0
    assert rows.to_arrow().schema == table.schema
    assert rows.to_arrow(lazy=True).read_all().num_rows == 0
    assert rows.to_pandas().shape == (0, 1)


def test_text_in_dictionaries_without_rows_comes_to_polars() -> None:
    no_cells = pa.nulls(0, pa.dictionary(pa.int8(), pa.large_string()))
    table = pa.table({"x": pa.chunked_array([no_cells, no_cells])})

    frame = data_stack.from_arrow(table).to_polars()

    assert frame.shape == (0, 1)


def test_float16_within_other_values_is_a_float_of_python(tmp_path: Path) -> None:
    half = np.float16(0.1)
    table = pa.table(
        {
            "struct": pa.array([{"a": half}, {"a": None}], pa.struct([("a", pa.float16())])),
            "list": pa.array([[{"a": half}], []], pa.list_(pa.struct([("a", pa.float16())]))),
            "map": pa.array([[("k", half)], None], pa.map_(pa.string(), pa.float16())),
        }
    )
    expected = [
        {"struct": {"a": float(half)}, "list": [{"a": float(half)}], "map": [("k", float(half))]},
        {"struct": {"a": None}, "list": [], "map": None},
    ]

    readers: list[Any] = [
        data_stack.from_arrow(table),
        ArrowDataset(written(tmp_path / "a", table)),
    ]
    for rows in readers:
        samples = list(rows)
        assert samples == expected
        assert type(samples[0]["struct"]["a"]) is float
        assert type(samples[0]["list"][0]["a"]) is float
        assert type(samples[0]["map"][0][1]) is float
        assert type(rows.read_batch([0])["struct"][0]["a"]) is float


def test_views_that_overlap_do_not_fill_the_memory(tmp_path: Path) -> None:
    n_cells = 1 << 18
    overlapping = pa.LargeListViewArray.from_arrays(
        np.zeros(n_cells, np.int64), np.full(n_cells, n_cells), np.zeros(n_cells, np.int8)
    )
    table = pa.table({"x": overlapping})
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)

    with pytest.raises(RequestLimitError, match="stored as views"):
        ArrowDataset(tmp_path / "a.arrow").read_column("x")
    with pytest.raises(RequestLimitError, match="stored as views"):
        data_stack.from_arrow(table)


def test_runs_of_long_text_do_not_fill_the_memory(tmp_path: Path) -> None:
    n_cells = 1 << 20
    runs = pa.RunEndEncodedArray.from_arrays(
        pa.array([n_cells], pa.int32()), pa.array(["a" * (1 << 20)])
    )
    table = pa.table({"x": runs})
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)

    with pytest.raises(RequestLimitError, match="stored as runs"):
        ArrowDataset(tmp_path / "a.arrow")[0]
