"""Metadata made anew, row-group indexes, and copies of Parquet datasets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from petastorm_fixtures import petastorm_folder

from data_stack.exception import ConfigError, DatasetFileCorruptError, ResourceNotFoundError
from data_stack.formats.parquet import (
    Field,
    NotNullIndex,
    ParquetDataset,
    ParquetManifest,
    ParquetWriter,
    PngCodec,
    Schema,
    SingleFieldIndex,
    SingleIndexSelector,
    build_indexes,
    copy_dataset,
    generate_metadata,
)
from data_stack.formats.parquet.petastorm_metadata import PICKLED_INDEXES_KEY
from data_stack.formats.parquet.pickled import read_pickled_indexes, read_pickled_schema
from data_stack.io.folder import folder_of

SCHEMA = Schema(
    "s",
    [
        Field("id", "int64"),
        Field("car", str),
        Field("note", str, nullable=True),
        Field("image", "uint8", (None, None, 3), PngCodec()),
    ],
)
INDEXES = [SingleFieldIndex("by_car", "car"), NotNullIndex("with_note", "note")]


def row(number: int) -> dict[str, Any]:
    note = "x" if number >= 15 else None
    return {"id": number, "car": f"car {number // 7}", "note": note, "image": np.full((2, 2, 3), number, np.uint8)}


def written(folder: Path, n_rows: int = 20, **arguments: Any) -> Path:
    with ParquetWriter(folder, SCHEMA, row_group_rows=5, **arguments) as writer:
        for number in range(len(writer), n_rows):
            writer.append(row(number))
    return folder


def metadata_of(folder: Path) -> dict[bytes, bytes]:
    return dict(pq.read_metadata(folder / "_common_metadata").metadata or {})


def ids(dataset: ParquetDataset) -> list[int]:
    return [int(number) for number in dataset.read_column("id")]


@pytest.mark.parametrize("when", ["on write", "afterwards"])
def test_indexes_find_the_row_groups_that_hold_a_value(tmp_path: Path, when: str) -> None:
    folder = written(tmp_path, indexes=INDEXES if when == "on write" else ())
    if when == "afterwards":
        assert set(build_indexes(folder, INDEXES[:1])) == {"by_car"}
        assert set(build_indexes(folder, INDEXES[1:])) == {"by_car", "with_note"}

    def found(index: str, *values: Any) -> list[int]:
        return ids(ParquetDataset(folder, row_groups=SingleIndexSelector(index, values)))

    assert found("by_car", "car 0") == list(range(10))
    assert found("by_car", "car 2") == list(range(10, 20))
    assert found("by_car", "nix") == []
    assert found("with_note") == list(range(15, 20))
    assert ParquetDataset(folder).schema == SCHEMA


def test_indexes_of_other_row_groups_are_never_used(tmp_path: Path) -> None:
    folder = written(tmp_path, indexes=INDEXES)
    pq.write_table(pq.read_table(folder), folder / "part-000009.parquet", row_group_size=3)

    with pytest.raises(ConfigError, match=r"row groups.*build_indexes"):
        ParquetDataset(folder, row_groups=SingleIndexSelector("by_car", ["car 0"]))
    with pytest.raises(ConfigError, match="no field 'nix'"):
        build_indexes(folder, [SingleFieldIndex("i", "nix")])

    build_indexes(folder, INDEXES)
    assert len(ParquetDataset(folder, row_groups=SingleIndexSelector("by_car", ["car 2"]))) == 10 + 8


def test_indexes_go_when_rows_are_appended(tmp_path: Path) -> None:
    folder = written(tmp_path, indexes=INDEXES)

    written(folder, 25)

    assert ids(ParquetDataset(folder)) == list(range(25))
    with pytest.raises(ConfigError, match=r"'by_car'.*no indexes"):
        ParquetDataset(folder, row_groups=SingleIndexSelector("by_car", ["car 0"]))


def test_indexes_are_built_of_petastorms_datasets_and_of_partitions(tmp_path: Path) -> None:
    folder = tmp_path / "legacy"
    shutil.copytree(petastorm_folder("legacy/0.7.6"), folder, copy_function=shutil.copyfile)
    before = metadata_of(folder)

    built = build_indexes(folder, [SingleFieldIndex("part", "partition_key"), SingleFieldIndex("odd", "id_odd")])

    part = built["part"]
    assert isinstance(part, SingleFieldIndex)
    assert [len(groups) for groups in part.row_groups.values()] == [1] * 10
    after = metadata_of(folder)
    assert {key for key in before if after.get(key) != before[key]} <= {b"ARROW:schema", PICKLED_INDEXES_KEY}
    theirs, now = read_pickled_indexes(before[PICKLED_INDEXES_KEY]), read_pickled_indexes(after[PICKLED_INDEXES_KEY])
    assert theirs.items() <= now.items()
    assert now.keys() - theirs.keys() == {"part", "odd"}


def test_metadata_of_any_parquet_are_made_from_its_footers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(10), "day": ["x", "y"] * 5, "t": [None, "u"] * 5})
    frame.to_parquet(tmp_path, partition_cols=["day"], row_group_size=3)

    report = generate_metadata(tmp_path)

    manifest = ParquetManifest.read(folder_of(tmp_path))
    assert manifest == report.manifest
    assert manifest is not None
    assert (manifest.n_rows, manifest.n_row_groups, manifest.partition_by, report.schema_from) == (10, 4, ("day",), "inferred")
    for record in manifest.files:
        assert record.size == (tmp_path / record.name).stat().st_size
    with ParquetWriter(tmp_path) as writer:
        assert len(writer) == 10
        writer.append({"a": 10, "day": "z", "t": None})
    assert sorted(int(each["a"]) for each in ParquetDataset(tmp_path)) == list(range(11))


def test_metadata_follow_what_other_tools_appended_and_removed(tmp_path: Path) -> None:
    folder = written(tmp_path, indexes=INDEXES, rows_per_file=10, petastorm=True)
    table = pq.read_table(folder / "part-000001.parquet")
    pq.write_table(table, folder / "part-000007.parquet", row_group_size=2)
    (folder / "part-000000.parquet").unlink()

    report = generate_metadata(folder)

    counts = json.loads(metadata_of(folder)[b"dataset-toolkit.num_row_groups_per_file.v1"])
    assert counts == {"part-000001.parquet": 2, "part-000007.parquet": 5}
    assert report.dropped_indexes
    assert report.schema_from == "data_stack"
    assert ParquetDataset(folder).schema == SCHEMA
    written(folder, 22)
    assert len(ParquetDataset(folder)) == 22


def test_petastorms_metadata_stay_as_they_were(tmp_path: Path) -> None:
    folder = tmp_path / "timeseries"
    shutil.copytree(petastorm_folder("timeseries"), folder, copy_function=shutil.copyfile)
    before = metadata_of(folder)

    report = generate_metadata(folder)

    after = metadata_of(folder)
    assert report.schema_from == "petastorm"
    assert not report.dropped_indexes
    for key in (b"dataset-toolkit.unischema.v1", b"dataset-toolkit.rowgroups_index.v1"):
        assert after[key] == before[key]
    assert sum(json.loads(after[b"dataset-toolkit.num_row_groups_per_file.v1"]).values()) == 4
    assert len(ParquetDataset(folder)) == 5000


def test_metadata_are_refused_where_there_is_nothing_to_make_them_of(tmp_path: Path) -> None:
    with pytest.raises(ResourceNotFoundError):
        generate_metadata(tmp_path)
    written(tmp_path)

    with pytest.raises(ConfigError, match="pass its folder"):
        generate_metadata(tmp_path / "part-000000.parquet")
    with pytest.raises(DatasetFileCorruptError, match="speed"):
        generate_metadata(tmp_path, schema=Schema("s", [Field("speed", "int64")]))
    (tmp_path / "part-000001.parquet").write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(DatasetFileCorruptError, match=r"part-000001\.parquet"):
        generate_metadata(tmp_path)


def test_a_copy_holds_the_fields_and_rows_that_were_asked_for(tmp_path: Path) -> None:
    written(tmp_path / "a", indexes=INDEXES, compression="snappy")

    report = copy_dataset(
        tmp_path / "a", tmp_path / "b", fields=["id", "im.*", "car"], not_null=["note"], partition_by=["car"], compression="gzip"
    )

    copied = ParquetDataset(tmp_path / "b")
    assert sorted(ids(copied)) == list(range(15, 20))
    assert list(copied.schema.fields) == ["id", "car", "image"]
    assert (report.n_rows, report.n_left_out, report.indexes, report.dropped_indexes) == (5, 15, ("by_car",), ("with_note",))
    assert len(ParquetDataset(tmp_path / "b", row_groups=SingleIndexSelector("by_car", ["car 2"]))) == 5
    assert (tmp_path / "b" / "car=car%202").is_dir()
    cells = pa.concat_tables(
        pq.read_table(file, columns=["image"], partitioning=None) for file in (tmp_path / "b").rglob("part-*.parquet")
    )
    assert set(cells.column("image").to_pylist()) <= set(pq.read_table(tmp_path / "a").column("image").to_pylist())


@pytest.mark.parametrize("name", ["timeseries", "legacy/0.7.6"])
def test_a_copy_of_petastorms_dataset_has_the_same_rows_and_petastorms_schema(tmp_path: Path, name: str) -> None:
    source = petastorm_folder(name)
    key = "timestamp" if name == "timeseries" else "id"

    copy_dataset(source, tmp_path, row_group_mb=0.05)

    before, after = ParquetDataset(source), ParquetDataset(tmp_path)
    assert after.schema == before.schema
    assert len(after) == len(before)
    orders = [np.argsort(dataset.read_column(key), kind="stable")[:50] for dataset in (before, after)]
    for mine, other in zip(*orders, strict=True):
        np.testing.assert_equal(after[int(other)], before[int(mine)])
    pickled = metadata_of(tmp_path)[b"dataset-toolkit.unischema.v1"]
    assert [field.name for field in read_pickled_schema(pickled).fields] == list(after.schema.fields)


def test_an_interrupted_copy_goes_on_and_others_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "a", 20)
    with pytest.raises(KeyError), ParquetWriter(tmp_path / "b", SCHEMA, rows_per_file=8) as writer:
        for number in range(9):
            writer.append(row(number))
        raise KeyError

    report = copy_dataset(tmp_path / "a", tmp_path / "b")

    assert (report.n_rows, report.n_there) == (20, 8)
    assert ids(ParquetDataset(tmp_path / "b")) == list(range(20))
    with pytest.raises(ConfigError, match="source and target"):
        copy_dataset(tmp_path / "a", tmp_path / "a")
    with pytest.raises(ConfigError, match="another schema"):
        copy_dataset(tmp_path / "a", tmp_path / "b", fields=["id"])
    assert copy_dataset(tmp_path / "a", tmp_path / "b", fields=["id"], overwrite=True).fields == ("id",)
    written(tmp_path / "c", 30)
    with pytest.raises(ConfigError, match="30 rows"):
        copy_dataset(tmp_path / "a", tmp_path / "c")


def test_a_partition_copied_alone_is_appended_to_once_its_manifest_is_recreated(tmp_path: Path) -> None:
    written(tmp_path / "all", partition_by=["car"])
    shutil.copytree(tmp_path / "all" / "car=car%200", tmp_path / "some" / "car=car%200")
    with pytest.raises(ConfigError, match=r"car%201.*missing.*generate-metadata"):
        ParquetWriter(tmp_path / "some")

    generate_metadata(tmp_path / "some")

    with ParquetWriter(tmp_path / "some") as writer:
        assert len(writer) == 7
