"""Metadata, row-group indexes and tools by Petastorm's names, and the datasets that Petastorm wrote."""

from __future__ import annotations

import io
import json
import pickle
import shutil
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
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
from data_stack_petastorm.etl.rowgroup_indexers import (
    FieldNotNullIndexer,
    Indexer,
    SingleFieldIndexer,
    indexer_of_json,
)
from data_stack_petastorm.etl.rowgroup_indexing import build_rowgroup_index, get_row_group_indexes
from data_stack_petastorm.fs_utils import FilesystemResolver
from data_stack_petastorm.parquet_metadata import PICKLED_INDEXES_KEY, UNISCHEMA_KEY
from data_stack_petastorm.pickles.index_reader import read_pickled_indexes
from data_stack_petastorm.pickles.schema_reader import read_pickled_schema
from data_stack_petastorm.schemas import as_schema
from data_stack_petastorm.selectors import (
    IntersectIndexSelector,
    SingleIndexSelector,
    UnionIndexSelector,
    select_row_groups,
)
from data_stack_petastorm.test_util.reader_mock import ReaderMock, schema_data_generator_example
from data_stack_petastorm.tools import copy_dataset as copy_dataset_tool
from data_stack_petastorm.tools.copy_dataset import copy_dataset
from data_stack_petastorm.unischema import Unischema, UnischemaField
from data_stack_petastorm.utils import DecodeFieldError, decode_row
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import object_column
from petastorm_fixtures import (
    Unpickler,
    expected_digests,
    expected_timeseries,
    petastorm_folder,
    value_digest,
)
from pyspark.errors import AnalysisException
from sizes import sized

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet import Field, ParquetDataset, ParquetWriter, Schema
from data_stack.formats.parquet import ScalarCodec as StoredScalarCodec
from data_stack.formats.parquet.files import find_files
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.metadata import INDEXES_KEY, read_metadata, write_metadata
from data_stack.io.folder import folder_of
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
    with ParquetWriter(
        tmp_path / "drives", as_schema(Drives), row_group_rows=5, petastorm=True
    ) as writer:
        for n in range(20):
            row = {
                "id": n,
                "car": f"car {n // 5}",
                "tags": [f"t{n}"] * 2,
                "when": np.datetime64("2024-01-01", "ns"),
            }
            writer.append(
                {**row, "event": n if n > 14 else None, "path": np.zeros((n, 2), "float32")}
            )
    return str(tmp_path / "drives")


def test_petastorm_finds_the_indexes_but_those_of_times(drives: str) -> None:
    indexers = [SingleFieldIndexer(name, name) for name in ("id", "car", "tags", "when")]

    build_rowgroup_index(drives, None, indexers)
    build_rowgroup_index(drives, None, [FieldNotNullIndexer("event", "event")])

    indexes = get_row_group_indexes(pq.ParquetDataset(drives))
    assert (
        indexes["car"].get_row_group_indexes("car 2")
        == indexes["tags"].get_row_group_indexes(np.str_("t11"))
        == {2}
    )
    assert (indexes["event"].get_row_group_indexes(), set(indexes)) == (
        {3},
        {"id", "car", "tags", "when", "event"},
    )
    metadata = Footers(find_files(drives)).metadata
    pickled = Unpickler(io.BytesIO(metadata[PICKLED_INDEXES_KEY])).load()
    assert {name: found._column_name for name, found in pickled.items()} == {
        n: n for n in ("id", "car", "tags", "event")
    }
    assert pickled["id"]._index_data[np.int64(7)] == {1}
    assert (pickled["event"]._index_data, pickled["id"]._index_data["no such"]) == ({3}, set())
    assert read_pickled_indexes(metadata[PICKLED_INDEXES_KEY])["car"].row_groups["car 3"] == {3}


def test_petastorm_reads_lists_of_text_as_lists_and_no_float16(drives: str, tmp_path: Path) -> None:
    metadata = Footers(find_files(drives)).metadata

    assert b"cbuiltins\nstr\n" in metadata[UNISCHEMA_KEY]
    assert read_pickled_schema(metadata[UNISCHEMA_KEY])[1][2].numpy_dtype is np.str_
    with pytest.raises(ConfigError, match=r"ScalarCodec\('float'\)"):
        ParquetWriter(tmp_path / "half", Schema("half", [Field("x", "float16")]), petastorm=True)
    Field("x", "float16", (), StoredScalarCodec("float"))


def test_the_schema_of_a_dataset_is_in_its_metadata(drives: str, tmp_path: Path) -> None:
    pq.write_table(
        pq.read_table(drives, columns=["id", "car"]).replace_schema_metadata(),
        tmp_path / "plain.parquet",
    )

    assert get_schema_from_dataset_url(f"file://{drives}").fields == get_schema(drives).fields
    assert list(get_schema(drives).fields) == list(Drives.fields)
    with pytest.raises(PetastormMetadataError, match="generate_petastorm_metadata"):
        get_schema(tmp_path / "plain.parquet")
    assert infer_or_load_unischema(tmp_path / "plain.parquet").car.numpy_dtype is np.str_
    with pytest.raises(OSError, match="no such file"):
        get_schema_from_dataset_url(tmp_path / "nowhere")


def test_metadata_are_generated(drives: str) -> None:
    (Path(drives) / "_common_metadata").unlink()

    schema = f"{__name__}.Drives"
    petastorm_generate_metadata.generate_petastorm_metadata(
        None, drives, schema, use_summary_metadata=True
    )

    summary = pq.read_metadata(Path(drives) / "_metadata")
    assert (summary.num_row_groups, summary.row_group(0).column(0).file_path) == (
        4,
        "part-000000.parquet",
    )
    assert len(ParquetDataset(drives)) == 20
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


# ---------------------------------------------------------------------- row-group indexes


def single(*columns: Any) -> Indexer:
    return SingleFieldIndexer("by_field", "field").build(enumerate(columns))


COLUMNS: list[tuple[Any, Any, dict[Any, set[int]]]] = [
    (np.array([3, 1, 3], np.int16), np.array([1], np.int16), {1: {0, 1}, 3: {0}}),
    (np.array(["a", "bc"]), np.array(["bc"]), {"a": {0}, "bc": {0, 1}}),
    (np.array([0.5, np.inf]), np.array([-0.0]), {0.5: {0}, np.inf: {0}, 0.0: {1}}),
    (np.array(["2020-02-29"], "M8[D]"), np.array(["NaT"], "M8[D]"), {datetime(2020, 2, 29): {0}}),
    (
        np.array([1500], "m8[ms]"),
        np.array([1], "m8[ms]"),
        {timedelta(seconds=1.5): {0}, timedelta(milliseconds=1): {1}},
    ),
    (object_column(Decimal("1.50"), None), object_column(Decimal("1.5")), {Decimal("1.5"): {0, 1}}),
    (
        object_column(np.array([1, 2]), None),
        object_column(np.array([], np.int64), np.array([2])),
        {1: {0}, 2: {0, 1}},
    ),
    (
        object_column(["x", None], ("y",)),
        object_column(np.array(["x"], object)),
        {"x": {0, 1}, "y": {0}},
    ),
    (np.array([[1, 2], [3, 1]]), np.array([[5, 5]]), {1: {0}, 2: {0}, 3: {0}, 5: {1}}),
]


@pytest.mark.parametrize(("first", "second", "expected"), COLUMNS)
def test_an_index_has_row_groups_of_values_not_of_nulls(
    first: Any, second: Any, expected: Any
) -> None:
    index = single(first, second)

    assert index.row_groups == expected
    scalars = [
        value
        for column in (first, second)
        for value in column
        if np.isscalar(value) and value == value
    ]
    assert all(map(index.get_row_group_indexes, scalars))
    assert (index.index_name, index.field) == ("by_field", "field")


def test_a_day_is_found_as_date_and_as_midnight() -> None:
    days, times = (
        single(np.array(["2020-02-29"], "M8[D]")),
        single(np.array(["2020-02-29"], "M8[us]")),
    )

    for index in (days, times):
        assert index.get_row_group_indexes(date(2020, 2, 29)) == {0}
        assert index.get_row_group_indexes(datetime(2020, 2, 29)) == {0}
        assert index.get_row_group_indexes(np.datetime64("2020-02-29", "ns")) == {0}
        assert index.get_row_group_indexes(datetime(2020, 2, 29, 1)) == set()


VALUES = st.one_of(
    st.text(),
    st.binary(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False),
    st.datetimes(timezones=st.sampled_from([None, timezone.utc, timezone(timedelta(hours=-5))])),
    st.times(),
    st.timedeltas(),
    st.integers(-(2**62), 2**62).map(lambda number: np.datetime64(number, "ps")),
)


@given(row_groups=st.dictionaries(VALUES, st.frozensets(st.integers(0, 2**40), min_size=1)))
def test_indexes_are_the_same_after_storing_as_json(row_groups: dict[Any, frozenset[int]]) -> None:
    read = indexer_of_json(
        json.loads(json.dumps(SingleFieldIndexer("one", "f", row_groups).to_json()))
    )

    assert read.row_groups == row_groups
    assert {(type(value), value) for value in read.row_groups} == {
        (type(value), value) for value in row_groups
    }


WRONG = [
    *({}, {"name": 1}, {"kind": "os.system"}),
    *({"values": [["a", groups]]} for groups in ([-1], [True], 5, ["b"])),
    *(
        {"values": [[value, [1]]]}
        for value in ({"os.system": "a"}, {"Decimal": "x"}, {"timedelta": 10**30}, ["a"])
    ),
    *({"values": values} for values in ([["a"]], 5)),
]


@pytest.mark.parametrize("content", WRONG, ids=repr)
def test_json_that_holds_no_indexes_is_an_error_of_ours(tmp_path: Path, content: Any) -> None:
    pq.write_table(pa.table({"f": [1, 2]}), tmp_path / "a.parquet")
    build_rowgroup_index(tmp_path, None, [SingleFieldIndexer("n", "f")])
    found: Any = read_metadata(folder_of(tmp_path))
    stored = json.loads(found.metadata[INDEXES_KEY])
    stored["indexes"] = [{**stored["indexes"][0], **content} if content else {}]
    changed = found.with_metadata({**found.metadata, INDEXES_KEY: json.dumps(stored).encode()})
    write_metadata(folder_of(tmp_path), changed, ["a.parquet"], None)

    with pytest.raises(DatasetFileCorruptError, match="row-group indexes"):
        select_row_groups(tmp_path, SingleIndexSelector("n", [1]))


INDEXES: dict[str, Indexer] = {
    "vehicle": SingleFieldIndexer(
        "vehicle", "vehicle", {"car_0": frozenset({0, 1}), "car_1": frozenset({1, 2})}
    ),
    "day": SingleFieldIndexer("day", "day", {1: frozenset({0, 2}), 2: frozenset({1})}),
    "events": FieldNotNullIndexer("events", "events", {True: frozenset({2, 3})}),
}

EITHER_DAY = UnionIndexSelector([SingleIndexSelector("day", [1]), SingleIndexSelector("day", [2])])
SELECTIONS = [
    (SingleIndexSelector("vehicle", ["car_0"]), {0, 1}),
    (SingleIndexSelector("vehicle", np.array(["car_1", "unknown"])), {1, 2}),
    (SingleIndexSelector("day", [np.int64(1), 2.0]), {0, 1, 2}),
    (SingleIndexSelector("events"), {2, 3}),
    (
        UnionIndexSelector(
            [SingleIndexSelector("vehicle", ["car_0"]), SingleIndexSelector("events")]
        ),
        {0, 1, 2, 3},
    ),
    (IntersectIndexSelector([EITHER_DAY, SingleIndexSelector("events")]), {2}),
]


@pytest.mark.parametrize(("selector", "expected"), SELECTIONS, ids=lambda value: repr(value)[:60])
def test_a_selector_chooses_row_groups(selector: Any, expected: set[int]) -> None:
    assert selector.select_row_groups(INDEXES) == expected
    assert INDEXES["events"].get_row_group_indexes(None) == {
        2,
        3,
    }  # and leaves the indexes as they are


def test_what_no_selector_can_mean_is_refused() -> None:
    with pytest.raises(ConfigError, match="as a list"):
        SingleIndexSelector("vehicle", "car_1")
    with pytest.raises(ConfigError, match=r"'by_field'.*'field'.*dict"):
        single(object_column({"a": 1}))
    with pytest.raises(ConfigError, match="at least one"):
        UnionIndexSelector([])


def test_indexes_find_row_groups_until_these_change(drives: str) -> None:
    build_rowgroup_index(drives, None, [SingleFieldIndexer("by_car", "car")])
    build_rowgroup_index(drives, None, [FieldNotNullIndexer("with_event", "event")])

    found = [
        select_row_groups(drives, SingleIndexSelector("by_car", [value]))
        for value in ("car 0", "car 2", "nix")
    ]
    assert found == [[0], [2], []]
    noted = ParquetDataset(
        drives, row_groups=select_row_groups(drives, SingleIndexSelector("with_event"))
    )
    assert noted.read_column("id").tolist() == list(range(15, 20))
    with pytest.raises(ConfigError, match="no field 'nix'"):
        build_rowgroup_index(drives, None, [SingleFieldIndexer("i", "nix")])
    pq.write_table(pq.read_table(drives), Path(drives) / "part-000009.parquet", row_group_size=3)
    with pytest.raises(ConfigError, match=r"row groups.*build_rowgroup_index"):
        select_row_groups(drives, SingleIndexSelector("by_car", ["car 0"]))


def test_indexes_go_when_rows_are_appended(drives: str) -> None:
    build_rowgroup_index(drives, None, [SingleFieldIndexer("by_car", "car")])

    with ParquetWriter(drives) as writer:
        writer.append(ParquetDataset(drives)[19])

    with pytest.raises(ConfigError, match="no row-group indexes"):
        select_row_groups(drives, SingleIndexSelector("by_car", ["car 0"]))


def test_indexes_are_added_to_those_of_petastorm(tmp_path: Path) -> None:
    folder = tmp_path / "legacy"
    shutil.copytree(petastorm_folder("legacy/0.7.6"), folder, copy_function=shutil.copyfile)
    before = pq.read_metadata(folder / "_common_metadata").metadata

    build_rowgroup_index(
        folder,
        None,
        [SingleFieldIndexer("part", "partition_key"), SingleFieldIndexer("odd", "id_odd")],
    )

    after = pq.read_metadata(folder / "_common_metadata").metadata
    assert {key for key in before if after.get(key) != before[key]} <= {
        b"ARROW:schema",
        PICKLED_INDEXES_KEY,
    }
    theirs, now = (
        {
            name: index.to_json()
            for name, index in read_pickled_indexes(metadata[PICKLED_INDEXES_KEY]).items()
        }
        for metadata in (before, after)
    )
    assert theirs.items() <= now.items()
    assert now.keys() - theirs.keys() == {"part", "odd"}
    assert [len(groups) for _, groups in now["part"]["values"]] == [1] * 10
