"""Where a filter takes some rows of a row group, these come whole, nothing else is kept, and errors name their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_stack.dataset.iterator.access import access_to
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet import Field, ParquetDataset, ParquetWriter, Schema
from data_stack.formats.parquet.codecs import PngCodec
from data_stack.formats.parquet.selecting import col

N_ROWS = 1200
ROW_GROUP = 500
#: Of random bytes, which do not compress: a row group has several MiB.
N_BYTES = 8192


def noise(n_rows: int) -> list[bytes]:
    return [each.tobytes() for each in np.random.default_rng(0).integers(0, 256, (n_rows, N_BYTES), np.uint8)]


def table_of(n_rows: int) -> pa.Table:
    numbers = range(n_rows)
    tensors = np.arange(n_rows * 6, dtype=np.float32).reshape(n_rows, 2, 3)
    return pa.table(
        {
            "n": np.arange(n_rows),
            "maybe": pa.array([None if n % 3 == 0 else n for n in numbers], pa.int16()),
            "text": [f"row {n}" for n in numbers],
            "kind": pa.array([f"kind {n % 5}" for n in numbers]).dictionary_encode(),
            "flag": [n % 2 == 0 for n in numbers],
            "ragged": pa.array([list(range(n % 4)) for n in numbers], pa.list_(pa.int32())),
            "pair": [[n, -n] for n in numbers],
            "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(tensors),
            "map": pa.array([[("k", n)] * (n % 2) for n in numbers], pa.map_(pa.string(), pa.int64())),
            "nested": pa.array([[[n], [n, n]] * (n % 2) for n in numbers], pa.list_(pa.list_(pa.int32()))),
            "half": pa.array([np.float16(n % 64) for n in numbers], pa.float16()),
            "three": pa.array([b"%03d" % (n % 1000) for n in numbers], pa.binary(3)),
            "zone": pa.array([n * 10**6 for n in numbers], pa.timestamp("us", "Europe/Berlin")),
            "none": pa.nulls(n_rows),
            "noise": noise(n_rows),
        }
    )


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def as_dicts(batch: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(batch, map(plain, values), strict=True)) for values in zip(*batch.values(), strict=True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("some_rows")
    pq.write_table(table_of(N_ROWS), path / "a.parquet", row_group_size=ROW_GROUP)
    return path


@pytest.mark.parametrize(
    "taken",
    [[0], [499, 500], list(range(3, N_ROWS, 7)), [*range(100, 130), 1199], list(range(20, N_ROWS))],
    ids=["first", "ends", "scattered", "stretch", "most"],
)
def test_the_rows_that_a_filter_takes_are_those_of_the_whole_dataset(folder: Path, taken: list[int]) -> None:
    whole = ParquetDataset(folder)
    some = ParquetDataset(folder, filters=col("n").isin(taken))
    order = np.random.default_rng(1).permutation(len(taken))

    batch, wanted = some.read_batch(order), whole.read_batch(np.array(taken)[order])

    expected = as_dicts(wanted)
    assert as_dicts(batch) == expected
    assert [column.dtype for column in batch.values()] == [column.dtype for column in wanted.values()]
    for n_bytes in (0, 1 << 30):  # numbers and text of most rows are taken of all row groups together
        plain_columns = ParquetDataset(folder, ["n", "text"], filters=col("n").isin(taken), max_cached_bytes=n_bytes)
        assert as_dicts(plain_columns.read_batch(order)) == [{"n": row["n"], "text": row["text"]} for row in expected]
    assert [{name: plain(value) for name, value in some[int(i)].items()} for i in order[:5]] == expected[:5]
    assert [sample["n"] for sample in some] == taken
    assert some.read_column("text").tolist() == [f"row {n}" for n in taken]


def test_a_damaged_cell_is_named_by_its_row_and_only_if_it_is_taken(tmp_path: Path) -> None:
    schema = Schema("s", [Field("n", "int64"), Field("i", "uint8", (3, 3), PngCodec())])
    with ParquetWriter(tmp_path, schema) as writer:
        for n in range(20):
            writer.append({"n": n, "i": np.full((3, 3), n, np.uint8)})
    (file,) = tmp_path.glob("part-*.parquet")
    table = pq.read_table(file)
    cells = table.column("i").to_pylist()
    cells[13] = b"no image"
    pq.write_table(table.set_column(1, table.schema.field("i"), pa.array(cells, pa.binary())), tmp_path / "b.parquet")

    dataset = ParquetDataset(tmp_path / "b.parquet", filters=col("n").isin([12, 13]))

    assert ParquetDataset(tmp_path / "b.parquet", filters=col("n").isin([12, 14])).read_column("i")[:, 0, 0].tolist() == [12, 14]
    assert str(access_to(dataset).locate(1)).startswith("row 13 of row group 0 of")
    for read in (lambda: dataset.read_batch([0, 1]), lambda: dataset[1], lambda: list(dataset)):
        with pytest.raises(DatasetFileCorruptError, match=r"row 13, field 'i'"):
            read()
