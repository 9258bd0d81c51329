"""Metadata and tools by Petastorm's names, and the datasets that Petastorm wrote."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from data_stack_petastorm.codecs import NdarrayCodec, ScalarCodec
from data_stack_petastorm.etl import petastorm_generate_metadata
from data_stack_petastorm.etl.dataset_metadata import (
    PetastormMetadataError,
    get_schema,
    get_schema_from_dataset_url,
    infer_or_load_unischema,
)
from data_stack_petastorm.fs_utils import FilesystemResolver
from data_stack_petastorm.parquet_metadata import UNISCHEMA_KEY
from data_stack_petastorm.pickles.schema_reader import read_pickled_schema
from data_stack_petastorm.schemas import as_schema
from data_stack_petastorm.test_util.reader_mock import ReaderMock, schema_data_generator_example
from data_stack_petastorm.tools import copy_dataset as copy_dataset_tool
from data_stack_petastorm.tools.copy_dataset import copy_dataset
from data_stack_petastorm.unischema import Unischema, UnischemaField
from data_stack_petastorm.utils import DecodeFieldError, decode_row
from petastorm_fixtures import (
    expected_digests,
    expected_timeseries,
    petastorm_folder,
    value_digest,
)
from pyspark.errors import AnalysisException
from sizes import sized

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, ParquetDataset, ParquetWriter, Schema
from data_stack.formats.parquet import ScalarCodec as StoredScalarCodec
from data_stack.formats.parquet.files import find_files
from data_stack.formats.parquet.footers import Footers
from data_stack.testing.comparing import assert_same

Drives = Unischema(
    "Drives",
    [
        UnischemaField("id", np.int64, (), ScalarCodec("bigint"), False),
        UnischemaField("car", np.str_, ()),
        UnischemaField("tags", np.str_, (None,), None, False),
        UnischemaField("when", np.datetime64, ()),
        UnischemaField("event", np.int32, (), nullable=True),
        UnischemaField("path", np.float32, (None, 2), NdarrayCodec(), False),
    ],
)


@pytest.fixture
def drives(tmp_path: Path) -> str:
    """A dataset of 20 rows in row groups of 5; only the last row group has events."""
    folder = tmp_path / "drives"
    with ParquetWriter(folder, as_schema(Drives), row_group_rows=5, petastorm=True) as writer:
        for number in range(20):
            writer.append(
                {
                    "id": number,
                    "car": f"car {number // 5}",
                    "tags": [f"t{number}"] * 2,
                    "when": np.datetime64("2024-01-01", "ns"),
                    "event": number if number >= 15 else None,
                    "path": np.zeros((number, 2), "float32"),
                }
            )
    return str(folder)


@pytest.fixture
def plain_file(drives: str, tmp_path: Path) -> Path:
    """A file without a schema of ours or of Petastorm."""
    path = tmp_path / "plain.parquet"
    table = pq.read_table(drives, columns=["id", "car"])
    pq.write_table(table.replace_schema_metadata(), path)
    return path


def test_petastorm_reads_lists_of_text_as_lists(drives: str) -> None:
    pickled = Footers(find_files(drives)).metadata[UNISCHEMA_KEY]

    _, fields = read_pickled_schema(pickled)

    assert b"cbuiltins\nstr\n" in pickled
    assert fields[2].name == "tags"
    assert fields[2].numpy_dtype is np.str_


def test_petastorm_reads_no_float16(tmp_path: Path) -> None:
    half = Field("x", "float16")
    as_float = Field("x", "float16", (), StoredScalarCodec("float"))

    with pytest.raises(ConfigError, match=r"ScalarCodec\('float'\)"):
        ParquetWriter(tmp_path / "half", Schema("half", [half]), petastorm=True)
    with ParquetWriter(tmp_path / "float", Schema("half", [as_float]), petastorm=True) as writer:
        writer.append({"x": 0.5})


def test_the_schema_of_a_dataset_is_in_its_metadata(drives: str) -> None:
    schema = get_schema(drives)

    assert list(schema.fields) == list(Drives.fields)
    assert get_schema_from_dataset_url(f"file://{drives}").fields == schema.fields
    assert get_schema(pq.ParquetDataset(drives)).fields == schema.fields


def test_a_file_without_a_schema_is_an_error(plain_file: Path) -> None:
    with pytest.raises(PetastormMetadataError, match="generate_petastorm_metadata"):
        get_schema(plain_file)


def test_a_schema_is_inferred_from_the_columns(plain_file: Path) -> None:
    assert infer_or_load_unischema(plain_file).car.numpy_dtype is np.str_


def test_the_schema_of_a_missing_dataset_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no such file"):
        get_schema_from_dataset_url(tmp_path / "nowhere")


def test_metadata_are_generated(drives: str) -> None:
    (Path(drives) / "_common_metadata").unlink()

    petastorm_generate_metadata.generate_petastorm_metadata(None, drives, f"{__name__}.Drives")

    assert list(get_schema(drives).fields) == list(Drives.fields)
    assert len(ParquetDataset(drives)) == 20


def test_a_summary_has_the_row_groups_of_all_files(drives: str) -> None:
    petastorm_generate_metadata.generate_petastorm_metadata(None, drives, use_summary_metadata=True)

    summary = pq.read_metadata(Path(drives) / "_metadata")
    assert summary.num_row_groups == 4
    assert summary.row_group(0).column(0).file_path == "part-000000.parquet"
    assert len(ParquetDataset(drives)) == 20


def test_metadata_of_something_else_are_not_generated(drives: str) -> None:
    with pytest.raises(ConfigError, match="not an instance of a Unischema"):
        petastorm_generate_metadata.generate_petastorm_metadata(None, drives, "os.path")


def test_a_copy_has_the_fields_that_match_and_no_nulls(drives: str, tmp_path: Path) -> None:
    copy_dataset(None, drives, f"file://{tmp_path}/copy", ["id", "ev.*"], ["event"], False, 1, None)

    assert list(get_schema(tmp_path / "copy").fields) == ["id", "event"]
    assert [row["id"] for row in ParquetDataset(tmp_path / "copy")] == [15, 16, 17, 18, 19]
    for error in (ConfigError, AnalysisException):  # Spark's, in a program that has imported it
        with pytest.raises(error, match="already exists"):
            copy_dataset(None, drives, str(tmp_path / "copy"), None, None, False, None, None)
    with pytest.raises(ConfigError, match="do not match any fields"):
        copy_dataset(None, drives, str(tmp_path / "other"), ["bogus"], None, False, None, None)

    copy_dataset_tool._main(
        [drives, str(tmp_path / "cli"), "--field-regex", "id", "ev.*", "--not-null-fields", "event"]
    )
    assert list(ParquetDataset(tmp_path / "cli")) == list(ParquetDataset(tmp_path / "copy"))
    petastorm_generate_metadata._main(
        ["--dataset_url", f"file://{tmp_path}/cli", "--use-summary-metadata"]
    )
    assert (tmp_path / "cli/_metadata").is_file()


def test_an_empty_file_without_a_required_field_is_copied(drives: str, tmp_path: Path) -> None:
    table = pq.read_table(Path(drives) / "part-000000.parquet").drop_columns(["event"])
    pq.write_table(table.slice(0, 0), Path(drives) / "part-000009.parquet")

    copy_dataset(None, drives, str(tmp_path / "copy"), ["id"], ["event"], False, 1, None)

    assert [row["id"] for row in ParquetDataset(tmp_path / "copy")] == [15, 16, 17, 18, 19]


def test_file_systems_of_urls(tmp_path: Path) -> None:
    resolver = FilesystemResolver(f"file://{tmp_path}/a%20b")

    assert resolver.get_dataset_path() == f"{tmp_path}/a b"
    assert pickle.loads(pickle.dumps(resolver.filesystem_factory()))() == resolver.filesystem()
    assert FilesystemResolver("memory://bucket/1.parquet").get_dataset_path() == "bucket/1.parquet"
    for wrong in ("/a/path", "unknown://bucket/path"):
        with pytest.raises(ValueError, match=r"/a/path|unknown"):
            FilesystemResolver(wrong)


def test_rows_are_made_up_and_decoded() -> None:
    numbers = Drives.create_schema_view([Drives.id, Drives.path])
    cell = NdarrayCodec().encode(Drives.path, np.ones((2, 2), np.float32))

    with ReaderMock(numbers, schema_data_generator_example) as reader:
        assert next(reader).path.shape == (10, 2)
    decoded = decode_row({"id": 3, "path": cell, "event": None, "more": 1}, Drives)
    assert (type(decoded["id"]), decoded["path"].sum(), decoded["event"], len(decoded)) == (
        np.int64,
        4,
        None,
        3,
    )
    with pytest.raises(DecodeFieldError, match="path"):
        decode_row({"path": "bogus"}, Drives)


# ---------------------------------------------------------------------- datasets of Petastorm


@pytest.mark.parametrize(
    ("name", "n_rows"), [("hello_world", 5), ("legacy/0.4.0", 100), ("legacy/0.7.6", 100)]
)
def test_every_value_equals_what_petastorm_decoded(name: str, n_rows: int) -> None:
    expected = expected_digests(name.removeprefix("legacy/"))

    dataset = ParquetDataset(petastorm_folder(name))

    assert len(dataset) == n_rows
    for sample in dataset:
        assert {field: value_digest(value) for field, value in sample.items()} == expected[
            int(sample["id"])
        ]


def test_the_time_series_reads_equal_to_its_truth_in_batches() -> None:
    expected = expected_timeseries()

    dataset = ParquetDataset(petastorm_folder("timeseries"))
    positions = np.arange(0, len(dataset), sized(7, 1))
    batch = dataset.read_batch(positions)

    assert len(dataset) == 5000
    assert list(dataset.schema.fields) == list(batch)
    for name, truth in expected.items():
        assert_same(list(batch.pop(name)), [truth[position] for position in positions])
    assert not batch
