"""The first rows of row groups, which sequences need that begin in the one before: no more of it is read, nothing differs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet import ParquetDataset, ParquetWriter
from data_stack.formats.parquet.codecs import CompressedNdarrayCodec, NdarrayCodec, PngCodec
from data_stack.formats.parquet.schema import Field, Schema

N_GROUP = 128
ROWS = range(3 * N_GROUP)


@pytest.fixture
def damaged(tmp_path: Path) -> ParquetDataset:
    """3 row groups, of which the second one has a damaged page at its end."""
    path = tmp_path / "rows.parquet"
    values = np.arange(len(ROWS) * 64, dtype=np.float64).reshape(len(ROWS), 64)
    table = pa.table({"time": np.array(ROWS), "value": list(values)})
    pq.write_table(
        table,
        path,
        row_group_size=N_GROUP,
        data_page_size=4096,
        compression="none",
        use_dictionary=False,
        write_page_checksum=True,
    )
    column = pq.read_metadata(path).row_group(1).column(1)
    end = column.data_page_offset + column.total_compressed_size
    data = bytearray(path.read_bytes())
    data[end - 64 : end] = bytes(64)
    path.write_bytes(data)
    return ParquetDataset(path)


def test_of_a_sequence_that_crosses_a_border_no_more_is_read_than_the_first_rows_behind_it(damaged: ParquetDataset) -> None:
    triples: Any = damaged.windows(3, order_by="time", max_gap=1)

    batch = triples.read_batch([3, N_GROUP - 1, N_GROUP - 2, 70])

    starts = np.array([3, N_GROUP - 1, N_GROUP - 2, 70])
    np.testing.assert_array_equal(batch["value"][:, :, 0], 64.0 * (starts[:, np.newaxis] + np.arange(3)))
    for read in (
        lambda: triples.read_batch([N_GROUP + 1]),
        lambda: damaged.read_batch(range(N_GROUP - 10, N_GROUP + 10)),  # more than the first ones
        lambda: damaged.read_batch([0, N_GROUP]),  # none just before them
    ):
        with pytest.raises(DatasetFileCorruptError, match="row group 1 of"):
            read()


def rows_of_all_kinds() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "number": np.arange(len(ROWS)) / 4,
        "maybe": [None if row % 3 else row for row in ROWS],
        "text": [f"row {row}" for row in ROWS],
        "some": [np.arange(row % 5, dtype=np.int32) for row in ROWS],
        "array": list(rng.random((len(ROWS), 3, 2))),
        "packed": list(rng.random((len(ROWS), 4))),
        "image": list(rng.integers(0, 256, (len(ROWS), 5, 4), dtype=np.uint8)),
        "day": [f"day {row // N_GROUP}" for row in ROWS],
    }


SCHEMA = Schema(
    "All",
    [
        Field("number", "float64"),
        Field("maybe", "int32", nullable=True),
        Field("text", "str"),
        Field("some", "int32", (None,)),
        Field("array", "float64", (3, 2), NdarrayCodec()),
        Field("packed", "float64", (4,), CompressedNdarrayCodec()),
        Field("image", "uint8", (5, 4), PngCodec()),
        Field("day", "str"),
    ],
)


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and np.array_equal(one, other)


def test_values_of_all_kinds_at_a_border_are_those_of_the_whole_row_groups(tmp_path: Path) -> None:
    with ParquetWriter(tmp_path, SCHEMA, row_group_rows=N_GROUP, partition_by=["day"]) as writer:
        writer.append_columns(rows_of_all_kinds())
    whole = ParquetDataset(tmp_path)
    expected = whole.read_batch(range(len(whole)))
    border = int(whole.block_lengths[0])
    rows = pickle.loads(pickle.dumps(ParquetDataset(tmp_path)))

    found = rows.read_batch([border - 2, border + 1, border, border - 1, 5])

    assert rows._cache.n_bytes > 0
    assert not rows._cache.is_at_hand(1, list(found))  # its first rows were enough
    for name, column in found.items():
        assert column.dtype == expected[name].dtype
        for value, place in zip(column, [border - 2, border + 1, border, border - 1, 5], strict=True):
            assert same(value, expected[name][place])
