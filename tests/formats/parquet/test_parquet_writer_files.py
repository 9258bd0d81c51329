"""The files that a Parquet writer makes: their sizes, folders and stores, and what lies beside them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from sizes import FULL
from writing import append_all, files_of

from data_stack.exception import ConfigError, DatasetFileCorruptError, StorageConflictError
from data_stack.formats.parquet import (
    Field,
    NdarrayCodec,
    ParquetDataset,
    ParquetManifest,
    ParquetWriter,
    ScalarCodec,
    Schema,
    writer_part,
)
from data_stack.io.folder import folder_of
from data_stack.io.storage_connectors import (
    FileStorageConnector,
    FsspecStorageConnector,
    InMemoryStorageConnector,
    StorageConnector,
)
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector

SCHEMA = Schema(
    "s", [Field("id", "int64"), Field("day", str), Field("x", "float32", (4, 4), NdarrayCodec())]
)


def row(number: int, **others: Any) -> dict[str, Any]:
    return {
        "id": number,
        "day": f"day {number % 3}",
        "x": np.full((4, 4), number, np.float32),
        **others,
    }


def groups(path: Path) -> list[int]:
    metadata = pq.read_metadata(path)
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def test_files_and_row_groups_have_the_requested_rows(tmp_path: Path) -> None:
    append_all(
        ParquetWriter(tmp_path, SCHEMA, rows_per_file=40, row_group_rows=15),
        (row(number) for number in range(100)),
    )

    files = [tmp_path / f"part-{number:06d}.parquet" for number in range(3)]
    assert [groups(file) for file in files] == [[15, 15, 10], [15, 15, 10], [15, 5]]
    assert list(files_of(tmp_path)) == [
        "_data_stack_manifest.parquet",
        *(file.name for file in files),
    ]


def test_row_groups_have_about_the_size_that_was_asked_for(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 2**62, (60_000, 8))

    with ParquetWriter(tmp_path, row_group_mb=0.25, file_mb=0.6) as writer:
        for start in range(0, len(values), 1000):
            writer.append_columns({"v": values[start : start + 1000]})

    files = sorted(tmp_path.glob("part-*.parquet"))
    for metadata in map(pq.read_metadata, files[:-1]):
        *sizes, last = (
            metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)
        )
        assert len(sizes) > 1
        assert all(0.6 * 2**18 < size < 1.5 * 2**18 for size in sizes)
        assert last < 1.5 * 2**18
    assert all(0.6 * 2**20 <= file.stat().st_size < 1.2 * 2**20 for file in files[:-1])
    assert (ParquetDataset(tmp_path).read_column("v") == values).all()


def test_every_damage_of_a_manifest_is_noticed(tmp_path: Path) -> None:
    append_all(ParquetWriter(tmp_path, SCHEMA), [row(0)])
    path = tmp_path / "_data_stack_manifest.parquet"
    data, manifest = path.read_bytes(), ParquetManifest.read(folder_of(tmp_path))
    assert manifest is not None
    start, n_bytes = data.index(manifest.to_json()), len(manifest.to_json())

    for at in range(start, start + n_bytes - 1, 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(DatasetFileCorruptError, match=r"_data_stack_manifest\.parquet"):
            ParquetManifest.read(folder_of(tmp_path))
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(
        DatasetFileCorruptError, match=r"_data_stack_manifest\.parquet is damaged.*Remove it"
    ):
        ParquetDataset(tmp_path)


def test_partitions_are_folders_that_others_read(tmp_path: Path) -> None:
    schema = Schema(
        "s",
        [
            Field("id", "int64"),
            Field("day", str, nullable=True),
            Field("n", "int32"),
            Field("on", bool),
            Field("x", "float32"),
        ],
    )
    days = ["2024-01-01", "a/b c%ü=1", None, "x" * 50]
    expected = [
        {"id": i, "day": days[i % 4], "n": i % 2, "on": i % 3 == 0, "x": i / 2} for i in range(50)
    ]

    with ParquetWriter(tmp_path, schema, partition_by=["day", "n", "on"]) as writer:
        for each in expected[:20]:
            writer.append(each)
        writer.append_columns(
            {name: [each[name] for each in expected[20:]] for name in expected[0]}
        )

    found = sorted(ParquetDataset(tmp_path), key=lambda each: int(each["id"]))
    assert [{name: each[name] for name in each} for each in found] == expected
    arrow = pads.dataset(tmp_path, partitioning="hive").to_table()
    by_id = sorted(arrow.to_pylist(), key=lambda each: int(each["id"]))
    assert [(each["id"], each["day"], each["n"], each["x"]) for each in by_id] == [
        (each["id"], each["day"], each["n"], each["x"]) for each in expected
    ]
    assert (tmp_path / "day=__HIVE_DEFAULT_PARTITION__" / "n=0" / "on=true").is_dir()
    assert (tmp_path / "day=a%2Fb%20c%25ü%3D1").is_dir()


def test_a_decimal_of_many_digits_names_its_own_folder(tmp_path: Path) -> None:
    schema = Schema(
        "s", [Field("id", "int64"), Field("price", Decimal, (), ScalarCodec("decimal(38,2)"))]
    )
    texts = ["123456789012345678901234567890123456.70", "123456789012345678901234567890123456.71"]
    texts += ["-1.50", "0.00", "100.00"]

    with ParquetWriter(tmp_path, schema, partition_by=["price"]) as writer:
        for number, text in enumerate(texts):
            writer.append({"id": number, "price": Decimal(text)})

    prices = {int(sample["id"]): sample["price"] for sample in ParquetDataset(tmp_path)}
    assert prices == {number: Decimal(text) for number, text in enumerate(texts)}
    folders = {path.name for path in tmp_path.glob("price=*")}
    assert {"price=-1.5", "price=0", "price=100"} < folders


def test_few_files_are_open_however_many_partitions_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_part, "_MAX_OPEN_FILES", 4)
    open_files = Path("/proc/self/fd")
    most = 0
    with ParquetWriter(tmp_path, SCHEMA, partition_by=["day"]) as writer:
        before = len(list(open_files.iterdir()))
        for number in range(60):
            writer.append_columns(
                {"id": [number], "day": [f"d{number % 20}"], "x": np.zeros((1, 4, 4), np.float32)}
            )
            most = max(most, len(list(open_files.iterdir())) - before)

    assert most <= 4 * 2  # each with its folder, which is synchronized when the file is published
    assert sorted(ParquetDataset(tmp_path).read_column("id").tolist()) == list(range(60))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"partition_by": ["x"]}, "cannot partition by 'x'"),
        ({"partition_by": ["nix"]}, "no field 'nix'"),
        ({"partition_by": ["id", "id"]}, "twice"),
        ({"partition_by": "day"}, "list of columns"),
        ({"row_group_mb": 0}, "row_group_mb"),
        ({"rows_per_file": 0}, "rows_per_file"),
        ({"compression": "zip"}, "compression 'zip'"),
        (
            {"petastorm": True, "schema": Schema("s", [Field("t", "timedelta64[ns]")])},
            "Petastorm|petastorm",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    tmp_path: Path, arguments: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        ParquetWriter(tmp_path, **{"schema": SCHEMA, **arguments})

    assert files_of(tmp_path) == {}


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__", None, 3, "y" * 300])
def test_values_that_can_name_no_folder_are_refused(tmp_path: Path, value: Any) -> None:
    with ParquetWriter(tmp_path, SCHEMA, partition_by=["day"]) as writer:
        writer.append(row(0))
        with pytest.raises(ConfigError, match="field 'day', row 1"):
            writer.append(row(1, day=value))
        with pytest.raises(ConfigError, match="field 'day', row 1"):
            writer.append_columns({"id": [1], "day": [value], "x": np.zeros((1, 4, 4), np.float32)})

    assert ParquetDataset(tmp_path).read_column("id").tolist() == [0]


@pytest.mark.parametrize("kind", ["memory", "mongodb", *(["file", "s3"] if FULL else [])])
def test_stores_are_written_and_gone_on_with(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    connector: StorageConnector
    if kind == "mongodb":
        connector = MongoDBStorageConnector(request.getfixturevalue("mongodb_uri"))
    elif kind == "s3":
        server = request.getfixturevalue("s3_server")
        connector = FsspecStorageConnector(f"s3://{server.new_bucket()}/data", **server.options())
    else:
        connector = (
            InMemoryStorageConnector() if kind == "memory" else FileStorageConnector(str(tmp_path))
        )
    with (
        pytest.raises(KeyError),
        ParquetWriter(connector, SCHEMA, prefix="sets/a", rows_per_file=10) as writer,
    ):
        for number in range(25):
            writer.append(row(number))
        raise KeyError

    with pytest.raises(DatasetFileCorruptError, match="not finished"):
        ParquetDataset(connector, prefix="sets/a")
    with ParquetWriter(connector, prefix="sets/a", rows_per_file=10) as writer:
        n_there = len(writer)
        if kind in ("file", "mongodb"):  # the others have no leases
            with pytest.raises(StorageConflictError, match="another writer"):
                ParquetWriter(connector, prefix="sets/a")
        for number in range(n_there, 30):
            writer.append(row(number))

    assert n_there == 20
    assert ParquetDataset(connector, prefix="sets/a").read_column("id").tolist() == list(range(30))
    assert connector.list_resources("sets/a/_data_stack_progress") == []
    writer = ParquetWriter(connector, SCHEMA, prefix="b", partition_by=["day"])
    writer.append(row(0))  # "day 0": no store has spaces in names
    with pytest.raises(ConfigError, match="cannot be stored"):
        writer.close()
    assert connector.list_resources("b/") == []


def test_appended_rows_are_seen_once_the_dataset_is_finished_again(
    tmp_path: Path,
) -> None:
    append_all(ParquetWriter(tmp_path, SCHEMA), [row(0)])

    with ParquetWriter(tmp_path, rows_per_file=1) as writer:
        assert len(writer) == 1
        for number in range(1, 4):
            writer.append(row(number))
        before = ParquetDataset(tmp_path).read_column("id").tolist()

    assert before == [0]
    assert ParquetDataset(tmp_path).read_column("id").tolist() == [0, 1, 2, 3]


def test_nothing_that_is_there_is_overwritten_unasked(tmp_path: Path) -> None:
    append_all(ParquetWriter(tmp_path / "set", SCHEMA), [row(0)])
    (tmp_path / "foreign").mkdir()
    pq.write_table(pq.read_table(tmp_path / "set"), tmp_path / "foreign" / "x.parquet")
    other = Schema("s", [Field("id", "int32")])

    with pytest.raises(ConfigError, match=r"another schema.*: .*id"):
        ParquetWriter(tmp_path / "set", other)
    with pytest.raises(ConfigError, match="partitioned by"):
        ParquetWriter(tmp_path / "set", SCHEMA, partition_by=["day"])
    with pytest.raises(ConfigError, match="choose another folder"):
        ParquetWriter(tmp_path / "set", SCHEMA, resume=False)
    with pytest.raises(ConfigError, match=r"x\.parquet.* already exists"):
        ParquetWriter(tmp_path / "foreign", SCHEMA)
    append_all(ParquetWriter(tmp_path / "set", other, overwrite=True), [{"id": 7}])
    append_all(ParquetWriter(tmp_path / "foreign", other, overwrite=True), [{"id": 7}])

    assert list(ParquetDataset(tmp_path / "set")) == [{"id": 7}]
    assert list(ParquetDataset(tmp_path / "foreign")) == [{"id": 7}]
