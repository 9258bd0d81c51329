"""The metadata of Parquet datasets: written again from the footers of their files, whose digests are compared."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parquet_layouts import write_layout
from petastorm_fixtures import petastorm_folder

from data_stack.exception import ConfigError, DatasetFileCorruptError, ResourceNotFoundError
from data_stack.formats.parquet import (
    Field,
    ParquetDataset,
    ParquetManifest,
    ParquetWriter,
    Schema,
    foreign_metadata,
    generate_metadata,
)
from data_stack.formats.parquet.metadata import write_metadata
from data_stack.formats.parquet.metadata_files import MANIFEST_KEY
from data_stack.formats.parquet.selecting import col
from data_stack.io.folder import folder_of
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.util.untrusted_text import seal_json


def metadata_of(folder: Path) -> dict[bytes, bytes]:
    return dict(pq.read_metadata(folder / "_common_metadata").metadata or {})


def test_metadata_of_any_parquet_are_made_from_its_footers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(10), "day": ["x", "y"] * 5, "t": [None, "u"] * 5})
    frame.to_parquet(tmp_path, partition_cols=["day"], row_group_size=3)

    manifest = generate_metadata(tmp_path)

    assert manifest == ParquetManifest.read(folder_of(tmp_path))
    assert (manifest.n_rows, manifest.partition_by) == (10, ("day",))
    for record in manifest.files:
        assert record.size == (tmp_path / record.name).stat().st_size
    with ParquetWriter(tmp_path) as writer:
        assert len(writer) == 10
        writer.append({"a": 10, "day": "z", "t": None})
    assert sorted(int(each["a"]) for each in ParquetDataset(tmp_path)) == list(range(11))


def test_petastorms_metadata_stay_as_they_were(tmp_path: Path) -> None:
    folder = tmp_path / "timeseries"
    shutil.copytree(petastorm_folder("timeseries"), folder, copy_function=shutil.copyfile)
    before = metadata_of(folder)

    generate_metadata(folder)

    after = metadata_of(folder)
    for key in (b"dataset-toolkit.unischema.v1", b"dataset-toolkit.rowgroups_index.v1"):
        assert after[key] == before[key]
    assert sum(json.loads(after[b"dataset-toolkit.num_row_groups_per_file.v1"]).values()) == 4
    assert len(ParquetDataset(folder)) == 5000


def test_metadata_cannot_be_generated_without_a_folder_of_valid_files(tmp_path: Path) -> None:
    with pytest.raises(ResourceNotFoundError):
        generate_metadata(tmp_path)
    write_layout(tmp_path, "file")

    with pytest.raises(ConfigError, match="pass its folder"):
        generate_metadata(tmp_path / "part-000000.parquet")
    with pytest.raises(DatasetFileCorruptError, match="speed"):
        generate_metadata(tmp_path, schema=Schema("s", [Field("speed", "int64")]))
    (tmp_path / "part-000001.parquet").write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(DatasetFileCorruptError, match=r"part-000001\.parquet"):
        generate_metadata(tmp_path)


def test_a_partition_copied_alone_is_appendable_once_metadata_are_recreated(
    tmp_path: Path,
) -> None:
    write_layout(tmp_path / "all", "partitions")
    shutil.copytree(tmp_path / "all" / "day=2024-01-02", tmp_path / "some" / "day=2024-01-02")
    with pytest.raises(ConfigError, match=r"2024-01-0[13].*missing.*generate-metadata"):
        ParquetWriter(tmp_path / "some")

    generate_metadata(tmp_path / "some")

    with ParquetWriter(tmp_path / "some") as writer:
        assert len(writer) == 5


def test_a_dataset_of_petastorm_names_the_package_that_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "data_stack.formats.parquet.foreign_metadata._GROUP", "data_stack.no_such_group"
    )
    foreign_metadata._load_petastorm_plugin.cache_clear()

    with pytest.raises(ConfigError, match=r"timeseries: .*lazy-data-stack-petastorm"):
        ParquetDataset(petastorm_folder("timeseries"))

    foreign_metadata._load_petastorm_plugin.cache_clear()


# ---------------------------------------------------------------------- digests of footers


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Two files of another tool, without checksums of pages, and a manifest made of them."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    for number in range(2):
        pq.write_table(
            pa.table({"text": ["same"] * 20}), folder / f"{number}.parquet", row_group_size=10
        )
    generate_metadata(folder)
    return folder


@pytest.mark.parametrize("where", ["folder", "store"])
def test_a_damaged_footer_is_noticed_by_reading_and_by_filtering(
    tmp_path: Path, where: str
) -> None:
    # in statistics: a filter would leave out rows
    with ParquetWriter(tmp_path / "set", rows_per_file=100) as writer:
        writer.append_columns({"time": np.arange(200)})
    path = tmp_path / "set" / "part-000001.parquet"
    before, _, after = path.read_bytes().rpartition(np.int64(199).tobytes())

    path.write_bytes(before + np.int64(198).tobytes() + after)

    source: Any = tmp_path
    if where == "store":
        source = InMemoryStorageConnector()
        for each in (tmp_path / "set").iterdir():
            source.set_resource(f"set/{each.name}", each.read_bytes())
    dataset = ParquetDataset(source, prefix="set")
    assert dataset[99] == {"time": 99}
    with pytest.raises(
        DatasetFileCorruptError, match=r"the footer of .*part-000001\.parquet.* is damaged"
    ):
        dataset[100]
    with pytest.raises(
        DatasetFileCorruptError, match=r"the footer of .*part-000001\.parquet.* is damaged"
    ):
        ParquetDataset(source, filters=col("time") > 0, prefix="set")


@pytest.mark.parametrize(
    "change",
    [{"row_groups": (3, 3)}, {"columns": {"time": None}}, {"columns": {"time": 1, "more": 1}}],
)
def test_a_manifest_that_lies_about_a_footer_is_an_error(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    with ParquetWriter(tmp_path, rows_per_file=10) as writer:
        writer.append_columns({"time": np.arange(6)})
    manifest = ParquetManifest.read(folder_of(tmp_path))
    assert manifest is not None

    lying = replace(manifest, files=(replace(manifest.files[0], **change),))
    write_metadata(folder_of(tmp_path), pq.read_schema(tmp_path / "part-000000.parquet"), [], lying)

    with pytest.raises(DatasetFileCorruptError, match=r"part-000000\.parquet.*manifest"):
        ParquetDataset(tmp_path)[0]


def test_files_that_another_tool_rewrote_are_read(foreign: Path) -> None:
    pq.write_table(pa.table({"text": ["other"]}), foreign / "1.parquet")

    assert ParquetDataset(foreign)[20]["text"] == "other"


@pytest.mark.parametrize("trusted", [True, False])
def test_a_file_with_its_footer_but_another_size_is_damaged(foreign: Path, trusted: bool) -> None:
    content = (foreign / "1.parquet").read_bytes()
    (foreign / "1.parquet").write_bytes(content[:4] + b"more" + content[4:])

    with pytest.raises(DatasetFileCorruptError, match=r"1\.parquet is damaged: it has"):
        ParquetDataset(foreign, filters=None if trusted else col("text") == "same")[20]


def test_a_manifest_of_an_earlier_version_is_refused_and_recreated(foreign: Path) -> None:
    earlier = pa.schema(
        [], metadata={MANIFEST_KEY: seal_json({"format": "data_stack parquet 3", "files": []})}
    )
    pq.write_metadata(earlier, foreign / "_data_stack_manifest.parquet")
    with pytest.raises(DatasetFileCorruptError, match=r"parquet 3'.*generate-metadata"):
        ParquetDataset(foreign)

    generate_metadata(foreign)

    assert len(ParquetDataset(foreign)) == 40


_RECORD = ["part-000000.parquet", 100, "3,2", "0" * 64, 0]


def _seal(**changed_fields: Any) -> bytes:
    """Return a manifest with a valid digest, in which some fields are changed."""
    manifest = ParquetManifest(Schema("s", [Field("id", "int64")]), ())
    fields = json.loads(manifest.to_json())
    del fields["digest"]
    fields.update({"n_rows": 5, "columns": [{"id": 1}], "files": [_RECORD]})
    return seal_json({**fields, **changed_fields})


def test_a_manifest_is_read_as_its_fields_say() -> None:
    manifest = ParquetManifest.from_json(_seal())

    (record,) = manifest.files
    assert (record.name, record.size, record.row_groups) == ("part-000000.parquet", 100, (3, 2))
    assert (record.columns, manifest.n_rows) == ({"id": 1}, 5)


@pytest.mark.parametrize("values", [-1, None, 0, 2**63 - 1])
def test_values_per_row_may_be_unknown(values: int | None) -> None:
    (record,) = ParquetManifest.from_json(_seal(columns=[{"id": values}])).files

    assert record.columns == {"id": values}


@pytest.mark.parametrize("columns", [{}, None, 5, "ab", [5], [["id"]], [{}, None]])
def test_columns_of_another_form_are_damage(columns: Any) -> None:
    with pytest.raises(DatasetFileCorruptError, match="is damaged"):
        ParquetManifest.from_json(_seal(columns=columns))


@pytest.mark.parametrize("values", [-2, 2**63, True, 1.0, "1", [1]])
def test_values_per_row_of_another_form_are_damage(values: Any) -> None:
    with pytest.raises(DatasetFileCorruptError, match="values per row"):
        ParquetManifest.from_json(_seal(columns=[{"id": values}]))


@pytest.mark.parametrize(
    "name",
    ["../secret.parquet", "/etc/secret", "a/../../b", "a//b", "./a", "a\\b", "a\0b", "", 5, None],
)
def test_a_file_outside_of_the_dataset_is_damage(name: Any) -> None:
    with pytest.raises(DatasetFileCorruptError, match="is damaged"):
        ParquetManifest.from_json(_seal(files=[[name, *_RECORD[1:]]]))


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (1, -1),
        (1, 2**63),
        (1, True),
        (1, "100"),
        (2, "3,-2"),
        (2, "3,x"),
        (2, f"{2**63}"),
        (2, [3, 2]),
        (3, "0" * 63),
        (3, None),
        (4, -1),
        (4, 1),
        (4, False),
    ],
)
def test_a_record_of_another_form_is_damage(index: int, value: Any) -> None:
    record = list(_RECORD)
    record[index] = value

    with pytest.raises(DatasetFileCorruptError, match="is damaged"):
        ParquetManifest.from_json(_seal(files=[record]))


@pytest.mark.parametrize("names", ["null", "5", '"id"', "[5]", "{", '{"id": 1}'])
def test_partition_columns_of_another_form_are_damage(names: str) -> None:
    with pytest.raises(DatasetFileCorruptError, match="is damaged"):
        ParquetManifest.from_json(_seal(partition_by=names))


def test_rows_or_files_that_are_not_as_stated_are_damage() -> None:
    with pytest.raises(DatasetFileCorruptError, match="lists a file twice"):
        ParquetManifest.from_json(_seal(files=[_RECORD, _RECORD], n_rows=10))
    with pytest.raises(DatasetFileCorruptError, match="not as many rows"):
        ParquetManifest.from_json(_seal(n_rows=6))
