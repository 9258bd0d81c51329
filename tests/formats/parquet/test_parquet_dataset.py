"""Parquet files of anybody as samples: values, order, files, selection of rows, sharing."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from data_stack_petastorm.predicates import in_lambda
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import check_all_ways_agree
from process_harness import in_fork
from writing import append_all

from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.exception import ConfigError, DatasetFileCorruptError, ResourceNotFoundError
from data_stack.formats.parquet import Field, ParquetDataset, ParquetWriter, Schema
from data_stack.formats.parquet.codecs import PngCodec
from data_stack.formats.parquet.selecting import col
from data_stack.io.storage_connectors import FileStorageConnector, InMemoryStorageConnector


def table_of(start: int, stop: int) -> pa.Table:
    """Rows with an id, a number, a label and a list, none of them null."""
    ids = np.arange(start, stop)
    return pa.table(
        {
            "id": ids,
            "speed": (ids % 7).astype(np.float32),
            "label": [f"class {number % 3}" for number in ids],
            "vec": pa.array(
                [[number, number + 1] for number in ids.tolist()], pa.list_(pa.int16())
            ),
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """100 rows in two files, of row groups of 10."""
    for part in range(2):
        pq.write_table(
            table_of(part * 50, part * 50 + 50),
            tmp_path / f"part-{part}.parquet",
            row_group_size=10,
        )
    return tmp_path


@pytest.fixture(scope="module")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 rows in row groups of 5."""
    path = tmp_path_factory.mktemp("small")
    pq.write_table(table_of(0, 23), path / "a.parquet", row_group_size=5)
    return path


@given(data=st.data())
def test_all_ways_to_the_samples_agree(small_folder: Path, data: st.DataObject) -> None:
    expected = [
        {
            "id": number,
            "speed": np.float32(number % 7),
            "label": f"class {number % 3}",
            "vec": np.array([number, number + 1], np.int16),
        }
        for number in range(23)
    ]

    check_all_ways_agree(ParquetDataset(small_folder), expected, data)


def test_only_the_columns_that_are_asked_for_are_read(folder: Path) -> None:
    damaged = folder / "part-0.parquet"
    column = pq.read_metadata(damaged).row_group(0).column(3)
    content = bytearray(damaged.read_bytes())
    start = (
        column.data_page_offset
        if column.dictionary_page_offset is None
        else column.dictionary_page_offset
    )
    content[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    damaged.write_bytes(content)

    assert ParquetDataset(folder, columns=["id"]).read_batch([0, 1])["id"].tolist() == [0, 1]
    assert ParquetDataset(folder).read_column("id", [0, 1]).tolist() == [0, 1]
    with pytest.raises(DatasetFileCorruptError, match=r"row group 0 of .*part-0\.parquet"):
        ParquetDataset(folder)[0]


def test_nulls_are_none_in_every_batch_and_integers_stay_exact(tmp_path: Path) -> None:
    numbers = [2**53 + 1, None, 3, 4]
    table = pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "x": pa.array([1.5, float("nan"), None, 2.0]),
            "full": [1, 2, 3, 4],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)

    dataset = ParquetDataset(tmp_path)
    batch = dataset.read_batch(range(4))

    assert batch["n"].tolist() == numbers
    assert batch["x"][0] == 1.5
    assert np.isnan(batch["x"][1])
    assert batch["x"][2] is None
    assert batch["full"].dtype == np.int64
    assert (
        dataset.read_batch([2, 3])["n"].dtype == object
    )  # no null among these: the same form nevertheless
    assert dataset[1]["n"] is None


def test_timestamps_are_read_in_the_unit_that_is_wanted(tmp_path: Path) -> None:
    times = pa.array([datetime.datetime(2020, 1, 1, 12), None], pa.timestamp("us", "UTC"))
    late = pa.array([datetime.datetime(9999, 12, 31), None], pa.timestamp("us"))
    days = pa.array([datetime.date(2020, 1, 1)] * 2)
    pq.write_table(
        pa.table({"time": times, "late": late, "day": days, "lists": [[each] for each in times]}),
        tmp_path / "a.parquet",
    )

    dataset = ParquetDataset(tmp_path, ["time", "day", "lists"], timestamp_unit="ns")

    found = {name: value.dtype.name for name, value in dataset[0].items()}
    assert found == {"time": "datetime64[ns]", "day": "datetime64[D]", "lists": "datetime64[ns]"}
    assert (dataset[0]["time"], dataset[1]["time"]) == (np.datetime64("2020-01-01T12"), None)
    chosen = ParquetDataset(
        tmp_path, ["day"], filters=col("late") > datetime.datetime(9999, 1, 1), timestamp_unit="ns"
    )
    assert len(chosen) == 1
    with pytest.raises(
        DatasetFileCorruptError,
        match=r"row 0, field 'late': 9999-12-31.* does not fit into dtype datetime64.ns",
    ):
        ParquetDataset(tmp_path, timestamp_unit="ns")[0]


def test_sources_are_files_lists_urls_stores_and_file_systems(
    folder: Path, tmp_path_factory: Any
) -> None:
    files = [folder / "part-1.parquet", folder / "part-0.parquet"]
    store = FileStorageConnector(tmp_path_factory.mktemp("store"))
    memory = InMemoryStorageConnector()
    for file in files:
        for connector in (store, memory):
            connector.set_resource(f"frames/{file.name}", file.read_bytes())

    assert [sample["id"] for sample in ParquetDataset(files[0])] == list(range(50, 100))
    assert [sample["id"] for sample in ParquetDataset(files)][:2] == [50, 51]
    assert len(ParquetDataset(f"file://{folder}")) == 100
    assert len(ParquetDataset(store, prefix="frames")) == 100
    assert ParquetDataset(memory, prefix="frames").read_batch([0, 99])["id"].tolist() == [0, 99]
    assert len(ParquetDataset(str(folder), filesystem=pafs.LocalFileSystem())) == 100
    assert ParquetDataset(str(files[0]), filesystem=pafs.LocalFileSystem())[0]["id"] == 50


@pytest.mark.parametrize("path", ["folder", "./folder", "folder/", "file://{}/folder", "{}/folder"])
def test_the_local_file_system_of_fsspec_takes_any_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    (tmp_path / "folder").mkdir()
    pq.write_table(table_of(0, 3), tmp_path / "folder" / "a.parquet")
    monkeypatch.chdir(tmp_path)

    dataset = ParquetDataset(path.format(tmp_path), filesystem=fsspec.filesystem("file"))

    assert dataset.read_column("id").tolist() == [0, 1, 2]


@pytest.mark.parametrize("path", ["/folder", "folder", "memory://folder", "/", ""])
def test_a_file_system_of_fsspec_in_memory_takes_any_path(tmp_path: Path, path: str) -> None:
    pq.write_table(table_of(0, 3), tmp_path / "a.parquet")
    memory = fsspec.filesystem("memory")
    memory.pipe("/folder/a.parquet", (tmp_path / "a.parquet").read_bytes())

    try:
        dataset = ParquetDataset(path, filesystem=memory)
        ids = dataset.read_column("id").tolist()
    finally:
        memory.rm("/folder", recursive=True)

    assert ids == [0, 1, 2]


@pytest.mark.parametrize("path", ["", "/", "."])
def test_the_root_of_a_file_system_is_a_source(folder: Path, path: str) -> None:
    filesystem = pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem())

    assert len(ParquetDataset(path, filesystem=filesystem)) == 100


@pytest.mark.parametrize("max_cached_bytes", [-1, 1.5, "1", None])
def test_an_invalid_limit_of_the_cache_is_refused(folder: Path, max_cached_bytes: Any) -> None:
    dataset = ParquetDataset(folder)
    with pytest.raises(ConfigError, match="max_cached_bytes"):
        dataset.limit_cache(max_cached_bytes)
    with pytest.raises(ConfigError, match="max_cached_bytes"):
        ParquetDataset(folder, max_cached_bytes=max_cached_bytes)


def test_nothing_there_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ResourceNotFoundError, match=str(tmp_path)):
        ParquetDataset(tmp_path)


def test_a_schema_that_is_refused_names_the_only_file(tmp_path: Path) -> None:
    for name in ("two.parquet", "other.parquet"):
        table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
        pq.write_table(table, tmp_path / name)

    with pytest.raises(ConfigError, match=r"the schema of .*two\.parquet: two fields"):
        ParquetDataset(tmp_path / "two.parquet")


def test_a_column_missing_in_one_file_is_nulls_or_refused(folder: Path) -> None:
    pq.write_table(table_of(100, 110).drop_columns(["speed"]), folder / "part-2.parquet")

    with pytest.warns(UserWarning, match=r"'speed' \(.*part-2\.parquet\)"):
        dataset = ParquetDataset(folder)

    assert dataset[105]["speed"] is None
    assert dataset.read_batch([0, 105])["speed"].tolist() == [0.0, None]
    required = pa.schema([field.with_nullable(False) for field in table_of(0, 1).schema])
    pq.write_table(table_of(0, 50).cast(required), folder / "part-0.parquet")
    with pytest.raises(DatasetFileCorruptError, match=r"part-2\.parquet.*'speed'"):
        ParquetDataset(folder)


def test_a_file_with_another_column_type_is_named(folder: Path) -> None:
    table = table_of(100, 110)
    table = table.set_column(0, "id", pa.array([f"id {number}" for number in range(10)]))
    pq.write_table(table, folder / "part-2.parquet")

    dataset = ParquetDataset(folder)

    assert dataset[99]["id"] == 99
    with pytest.raises(DatasetFileCorruptError, match=r"part-2\.parquet, field 'id'"):
        dataset[100]
    assert dataset[3]["id"] == 3


def test_filters_choose_rows_use_other_columns_and_spare_row_groups(folder: Path) -> None:
    file = folder / "part-0.parquet"
    content = bytearray(file.read_bytes())
    content[4:200] = bytes(196)  # of the first row group
    file.write_bytes(content)

    dataset = ParquetDataset(folder, columns=["id"], filters=(col("speed") == 3) & (col("id") > 50))

    expected = [number for number in range(51, 100) if number % 7 == 3]
    assert [sample["id"] for sample in dataset] == expected
    assert dataset.block_lengths.sum() == len(expected)
    assert dataset.read_batch([1, 0])["id"].tolist() == [expected[1], expected[0]]
    assert list(dataset.schema.fields) == ["id"]
    assert len(ParquetDataset(folder, filters=[("id", ">", 95)])) == 4
    with pytest.raises(ConfigError, match=r"spede.*did you mean.*speed"):
        ParquetDataset(folder, filters=col("spede") > 3)


def test_a_function_that_raises_names_file_row_group_and_row(folder: Path) -> None:
    def broken(number: int) -> bool:
        return bool(1 / (number - 57))

    dataset = ParquetDataset(folder, filters=in_lambda(["id"], broken))

    with pytest.raises(
        ConfigError, match=r"row group 0 of .*part-1\.parquet.*row 7.*division by zero"
    ):
        len(dataset)


def test_a_forked_child_goes_on_reading(folder: Path) -> None:
    dataset = ParquetDataset(folder)
    dataset[0]

    assert in_fork(lambda: dataset[77]["id"] == 77) == 0


# ---------------------------------------------------------------------- some rows of a row group


N_ROWS = 1200
ROW_GROUP = 500
#: Of random bytes, which do not compress: a row group has several MiB.
N_BYTES = 8192


def noise(n_rows: int) -> list[bytes]:
    return [
        each.tobytes()
        for each in np.random.default_rng(0).integers(0, 256, (n_rows, N_BYTES), np.uint8)
    ]


def wide_table(n_rows: int) -> pa.Table:
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
            "map": pa.array(
                [[("k", n)] * (n % 2) for n in numbers], pa.map_(pa.string(), pa.int64())
            ),
            "nested": pa.array(
                [[[n], [n, n]] * (n % 2) for n in numbers], pa.list_(pa.list_(pa.int32()))
            ),
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
    return [
        dict(zip(batch, map(plain, values), strict=True))
        for values in zip(*batch.values(), strict=True)
    ]


@pytest.fixture(scope="module")
def wide_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("some_rows")
    pq.write_table(wide_table(N_ROWS), path / "a.parquet", row_group_size=ROW_GROUP)
    return path


@pytest.mark.parametrize(
    "taken",
    [[0], [499, 500], list(range(3, N_ROWS, 7)), [*range(100, 130), 1199], list(range(20, N_ROWS))],
    ids=["first", "ends", "scattered", "stretch", "most"],
)
def test_filtered_rows_are_those_of_the_whole_dataset(wide_folder: Path, taken: list[int]) -> None:
    whole = ParquetDataset(wide_folder)
    some = ParquetDataset(wide_folder, filters=col("n").isin(taken))
    order = np.random.default_rng(1).permutation(len(taken))

    batch, wanted = some.read_batch(order), whole.read_batch(np.array(taken)[order])

    expected = as_dicts(wanted)
    assert as_dicts(batch) == expected
    assert [column.dtype for column in batch.values()] == [
        column.dtype for column in wanted.values()
    ]
    for n_bytes in (
        0,
        1 << 30,
    ):  # numbers and text of most rows are taken of all row groups together
        plain_columns = ParquetDataset(
            wide_folder, ["n", "text"], filters=col("n").isin(taken), max_cached_bytes=n_bytes
        )
        assert as_dicts(plain_columns.read_batch(order)) == [
            {"n": row["n"], "text": row["text"]} for row in expected
        ]
    assert [
        {name: plain(value) for name, value in some[int(i)].items()} for i in order[:5]
    ] == expected[:5]
    assert [sample["n"] for sample in some] == taken
    assert some.read_column("text").tolist() == [f"row {n}" for n in taken]


def test_a_damaged_cell_is_named_if_its_row_is_taken(tmp_path: Path) -> None:
    schema = Schema("s", [Field("n", "int64"), Field("i", "uint8", (3, 3), PngCodec())])
    append_all(
        ParquetWriter(tmp_path, schema),
        ({"n": n, "i": np.full((3, 3), n, np.uint8)} for n in range(20)),
    )
    (file,) = tmp_path.glob("part-*.parquet")
    table = pq.read_table(file)
    cells = table.column("i").to_pylist()
    cells[13] = b"no image"
    pq.write_table(
        table.set_column(1, table.schema.field("i"), pa.array(cells, pa.binary())),
        tmp_path / "b.parquet",
    )

    dataset = ParquetDataset(tmp_path / "b.parquet", filters=col("n").isin([12, 13]))

    assert ParquetDataset(tmp_path / "b.parquet", filters=col("n").isin([12, 14])).read_column("i")[
        :, 0, 0
    ].tolist() == [12, 14]
    assert str(access_to(dataset).locate(1)).startswith("row 13 of row group 0 of")
    for read in (lambda: dataset.read_batch([0, 1]), lambda: dataset[1], lambda: list(dataset)):
        with pytest.raises(DatasetFileCorruptError, match=r"row 13, field 'i'"):
            read()
