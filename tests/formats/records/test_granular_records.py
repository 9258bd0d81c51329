"""A finished dataset that Granular appended to: what it appended is served without checksums until
a manifest covers it.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import granular
import numpy as np
import pytest
from granular_fixtures import expected_of, fixture_folder
from granular_peer import read_by_old_granular
from process_harness import flip_file
from writing import append_all, files_of

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats import records
from data_stack.formats.records import (
    ColumnType,
    RecordReader,
    RecordWriter,
    ShardedRecordWriter,
    bag,
)
from data_stack.formats.records.stored_file import StoredFile
from data_stack.io.folder import folder_of
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.testing.comparing import assert_same

#: Four thousand bytes a record: the manifest ends inside of a block of 64 KiB.
SPEC: dict[str, str | ColumnType] = {
    "label": "i64",
    "text": "utf8",
    "x": ColumnType("array", "float32", (1000,)),
}
TYPES = {"label": "i64", "text": "utf8", "x": "array"}


def sample(i: int) -> dict[str, Any]:
    return {"label": i, "text": f"number {i}", "x": np.full(1000, i, np.float32)}


def write(folder: Path, n_ours: int = 30, n_theirs: int = 25) -> Path:
    append_all(RecordWriter(folder, SPEC), (sample(i) for i in range(n_ours)))
    append_all(
        granular.DatasetWriter(folder, TYPES, granular.encoders),
        (sample(i) for i in range(n_ours, n_ours + n_theirs)),
    )
    return folder


def test_samples_that_granular_appended_are_served_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write(tmp_path / "data", 3, 2)
    append_all(
        granular.DatasetWriter(folder, TYPES, granular.encoders), [{**sample(5), "x": np.arange(4)}]
    )

    for _ in range(2):
        with RecordReader(folder) as reader:
            assert (len(reader), reader.manifest) == (6, None)
            assert reader.read_batch([4, 1])["x"][:, 0].tolist() == [4, 1]
            assert reader[5]["x"].tolist() == [0, 1, 2, 3]
            reader.verify()
    assert caplog.text.count("does not cover all samples") == 1

    assert records.write_manifest(folder) == 6 == records.write_manifest(str(folder))
    with RecordReader(folder) as reader:
        reader.verify()
        assert reader.manifest is not None
        assert reader.manifest.count == 6


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize(("file", "offset"), [("x.bag", 70_000), ("text.bag", 3), ("text.idx", 80)])
def test_damage_is_found_where_the_manifest_covers(
    tmp_path: Path, file: str, offset: int, mapped: bool
) -> None:
    folder = write(tmp_path / "data")
    with RecordReader(folder, mapped=mapped) as reader:
        assert_same(list(reader), [sample(i) for i in range(55)])
    flip_file(folder / file, 8 * offset)

    for read in (
        lambda reader: reader.read_batch(range(25, 35)),
        lambda reader: reader[17],
        RecordReader.verify,
    ):
        with pytest.raises(
            DatasetFileCorruptError, match=rf"{file} is damaged.* differs from its checksum"
        ):
            with RecordReader(folder, mapped=mapped) as reader:
                read(reader)
    with pytest.raises(DatasetFileCorruptError, match="digest in the manifest"):
        records.write_manifest(folder)


def test_an_interrupted_append_is_refused_until_a_manifest_is_written(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", 5, 2)
    append_all(granular.BagWriter(folder / "label.bag"), [(7).to_bytes(8, "little")])
    with (
        (folder / "x.bag").open("ab") as torn,
        (folder / "text.idx").open("ab") as index,
        (folder / "x.idx").open("ab") as other,
    ):
        torn.write(b"torn")
        index.write(b"t")
        other.write(b"t")

    with pytest.raises(DatasetFileCorruptError, match="differ in their numbers"):
        RecordReader(folder)
    assert records.write_manifest(folder) == 7
    assert (folder / "label.idx").stat().st_size == 7 * 8


def test_shards_get_manifests_and_stores_do_not(tmp_path: Path) -> None:
    append_all(
        ShardedRecordWriter(tmp_path / "shards", SPEC, shardlen=2), (sample(i) for i in range(4))
    )
    append_all(
        granular.DatasetWriter(tmp_path / "shards" / "000001", TYPES, granular.encoders),
        [sample(4)],
    )

    assert records.write_manifest(tmp_path / "shards") == 5
    with records.open(tmp_path / "shards") as reader:
        assert [each["label"] for each in reader] == [0, 1, 2, 3, 4]
    with pytest.raises(ConfigError, match="local folder"):
        records.write_manifest(InMemoryStorageConnector())


# ---------------------------------------------------------------------- all layouts of Granular


def assert_same_but_for_jpeg(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    """JPEG decoders differ in the last bits; that the bytes are right, another test says."""
    assert list(actual) == list(expected)
    for name, value in expected.items():
        if name == "abc":
            assert actual[name].shape == value.shape
            assert np.abs(actual[name].astype(int) - value).max() <= 3
        else:
            assert_same(actual[name], value)


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("name", ["small_new", "small_old", "resumed", "sharded"])
def test_a_dataset_of_granular_reads_equal_to_its_truth(name: str, mapped: bool) -> None:
    expected = expected_of(name)

    with records.open(fixture_folder(name), mapped=mapped) as reader:
        assert reader.spec == expected["spec"]
        assert len(reader) == expected["length"]
        positions = range(len(reader))
        for found in (
            [reader[position] for position in positions],
            reader,
            reader.__getitems__(positions),
        ):
            for actual, sample in zip(found, expected["decoded"], strict=True):
                assert_same_but_for_jpeg(actual, sample)


# ---------------------------------------------------------------------- programs of Granular


@pytest.mark.parametrize("name", ["small_new", "small_old", "sharded"])
def test_a_granular_dataset_written_again_has_the_same_bytes(tmp_path: Path, name: str) -> None:
    with records.open(
        fixture_folder(name), codecs={"jpg": None, "png": None}
    ) as reader:  # images stay files
        samples, spec = list(reader), reader.spec

    with (
        ShardedRecordWriter(tmp_path, spec, shardlen=7)
        if name == "sharded"
        else RecordWriter(tmp_path, spec) as writer
    ):
        for each in samples[:5]:
            writer.append(each)
        writer.extend({column: [each[column] for each in samples[5:]] for column in spec})

    notes = ("manifest.json", "progress.json")  # which Granular has not
    assert files_of(tmp_path, *notes) == files_of(fixture_folder(name), *notes)


def test_old_granular_reads_empty_records_and_many(tmp_path: Path) -> None:
    """It refuses to write empty ones itself; the numbers of 300 records have one, two and three
    bytes.
    """
    written = {}
    for first in (b"", b"a"):
        samples = [
            {"blob": blob, "parts": [first, b"", b"c"]} for blob in (first, b"", b"b", b"") * 75
        ]
        written[tmp_path / f"first {first!r}"] = samples
        append_all(
            RecordWriter(tmp_path / f"first {first!r}", {"blob": "bytes", "parts": "bytes[]"}),
            samples,
        )

    assert read_by_old_granular(*written) == [*written.values()]
    for folder, samples in written.items():
        with RecordReader(folder) as reader:
            assert [reader[i] for i in range(len(reader))] == samples


def test_old_names_of_functions_warn(tmp_path: Path) -> None:
    folder = tmp_path / "dataset"
    append_all(records.RecordWriter(folder, {"x": "int"}), [{"x": 1}])
    # Records of 3 and 2 bytes, with their index behind them.
    (folder / "old.bag").write_bytes(b"abcde" + struct.pack("<2Q", 3, 5))
    file = StoredFile(folder_of(folder), "old.bag", None)

    with pytest.warns(DeprecationWarning, match=r"write_manifest\(\)"):
        n_samples = records.seal(folder)
    with pytest.warns(DeprecationWarning, match=r"find_offsets_in_bag\(\)"):
        offsets, n_bytes = bag.ends_of_bag("x", file)

    assert n_samples == 1
    assert (offsets.n_records, n_bytes) == (2, 5)
