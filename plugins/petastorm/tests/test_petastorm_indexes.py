"""Row-group indexes of datasets, and selectors of row groups that ask them."""

from __future__ import annotations

import io
import json
import shutil
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_stack_petastorm.etl.rowgroup_indexers import (
    FieldNotNullIndexer,
    Indexer,
    SingleFieldIndexer,
    indexer_of_json,
)
from data_stack_petastorm.etl.rowgroup_indexing import build_rowgroup_index, get_row_group_indexes
from data_stack_petastorm.parquet_metadata import PICKLED_INDEXES_KEY
from data_stack_petastorm.pickles.index_reader import read_pickled_indexes
from data_stack_petastorm.selectors import (
    IntersectIndexSelector,
    SingleIndexSelector,
    UnionIndexSelector,
    select_row_groups,
)
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import object_column
from petastorm_fixtures import Unpickler, petastorm_folder

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet import Field, ListCodec, ParquetDataset, ParquetWriter, Schema
from data_stack.formats.parquet.files import find_files
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.metadata import INDEXES_KEY, write_metadata
from data_stack.formats.parquet.metadata_files import read_metadata
from data_stack.io.folder import folder_of

DRIVES = Schema(
    "Drives",
    [
        Field("id", "int64"),
        Field("car", str),
        Field("tags", str, (None,), ListCodec("string")),
        Field("when", "datetime64[us]"),
        Field("event", "int32", nullable=True),
    ],
)


@pytest.fixture
def drives(tmp_path: Path) -> str:
    """A dataset of 20 rows in row groups of 5, each of another car; only the last has events."""
    folder = tmp_path / "drives"
    with ParquetWriter(folder, DRIVES, row_group_rows=5, petastorm=True) as writer:
        for number in range(20):
            writer.append(
                {
                    "id": number,
                    "car": f"car {number // 5}",
                    "tags": [f"t{number}"] * 2,
                    "when": np.datetime64("2024-01-01", "us"),
                    "event": number if number >= 15 else None,
                }
            )
    return str(folder)


# ------------------------------------------------------------------------------------ of columns


def index_of(*columns: Any) -> Indexer:
    """The index of a field with these columns, one a row group."""
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
    index = index_of(first, second)

    assert index.row_groups == expected
    for value in [*first, *second]:
        is_missing = value != value  # NaN and NaT
        if np.isscalar(value) and not is_missing:
            assert index.get_row_group_indexes(value)
    assert (index.index_name, index.field) == ("by_field", "field")


@pytest.mark.parametrize("dtype", ["M8[D]", "M8[us]"])
def test_a_day_is_found_as_date_and_as_midnight(dtype: str) -> None:
    index = index_of(np.array(["2020-02-29"], dtype))

    assert index.get_row_group_indexes(date(2020, 2, 29)) == {0}
    assert index.get_row_group_indexes(datetime(2020, 2, 29)) == {0}
    assert index.get_row_group_indexes(np.datetime64("2020-02-29", "ns")) == {0}
    assert index.get_row_group_indexes(datetime(2020, 2, 29, 1)) == set()


def test_all_nans_are_one_value() -> None:
    index = index_of(np.array([np.nan]), object_column(float("nan")))

    assert index.get_row_group_indexes(np.float32("nan")) == {0, 1}


def test_values_that_cannot_be_looked_up_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'by_field'.*'field'.*dict"):
        index_of(object_column({"a": 1}))


# ------------------------------------------------------------------------------------ as JSON

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
    stored = json.dumps(SingleFieldIndexer("one", "f", row_groups).to_json())

    read = indexer_of_json(json.loads(stored))

    assert read.row_groups == row_groups
    types_read = {(type(value), value) for value in read.row_groups}
    assert types_read == {(type(value), value) for value in row_groups}


#: What is changed in the JSON of an index; nothing: an index without content.
WRONG: list[dict[str, Any]] = [
    {},
    {"name": 1},
    {"kind": "os.system"},
    {"values": [["a", [-1]]]},
    {"values": [["a", [True]]]},
    {"values": [["a", 5]]},
    {"values": [["a", ["b"]]]},
    {"values": [[{"os.system": "a"}, [1]]]},
    {"values": [[{"Decimal": "x"}, [1]]]},
    {"values": [[{"timedelta": 10**30}, [1]]]},
    {"values": [[["a"], [1]]]},
    {"values": [["a"]]},
    {"values": 5},
]


@pytest.mark.parametrize("content", WRONG, ids=repr)
def test_json_that_holds_no_indexes_is_an_error_of_ours(tmp_path: Path, content: Any) -> None:
    pq.write_table(pa.table({"f": [1, 2]}), tmp_path / "a.parquet")
    build_rowgroup_index(tmp_path, None, [SingleFieldIndexer("n", "f")])
    schema: Any = read_metadata(folder_of(tmp_path))
    stored = json.loads(schema.metadata[INDEXES_KEY])
    (index,) = stored["indexes"]
    wrong_index = {**index, **content} if content else {}
    stored["indexes"] = [wrong_index]
    metadata = {**schema.metadata, INDEXES_KEY: json.dumps(stored).encode()}
    write_metadata(folder_of(tmp_path), schema.with_metadata(metadata), ["a.parquet"], None)

    with pytest.raises(DatasetFileCorruptError, match="row-group indexes"):
        select_row_groups(tmp_path, SingleIndexSelector("n", [1]))


# ------------------------------------------------------------------------------------ selectors

INDEXES: dict[str, Indexer] = {
    "vehicle": SingleFieldIndexer(
        "vehicle", "vehicle", {"car_0": frozenset({0, 1}), "car_1": frozenset({1, 2})}
    ),
    "day": SingleFieldIndexer("day", "day", {1: frozenset({0, 2}), 2: frozenset({1})}),
    "events": FieldNotNullIndexer("events", "events", {True: frozenset({2, 3})}),
}

EITHER_DAY = UnionIndexSelector([SingleIndexSelector("day", [1]), SingleIndexSelector("day", [2])])
CAR_OR_EVENTS = UnionIndexSelector(
    [SingleIndexSelector("vehicle", ["car_0"]), SingleIndexSelector("events")]
)
SELECTIONS = [
    (SingleIndexSelector("vehicle", ["car_0"]), {0, 1}),
    (SingleIndexSelector("vehicle", np.array(["car_1", "unknown"])), {1, 2}),
    (SingleIndexSelector("day", [np.int64(1), 2.0]), {0, 1, 2}),
    (SingleIndexSelector("events"), {2, 3}),
    (CAR_OR_EVENTS, {0, 1, 2, 3}),
    (IntersectIndexSelector([EITHER_DAY, SingleIndexSelector("events")]), {2}),
]


@pytest.mark.parametrize(("selector", "expected"), SELECTIONS, ids=lambda value: repr(value)[:60])
def test_a_selector_chooses_row_groups(selector: Any, expected: set[int]) -> None:
    assert selector.select_row_groups(INDEXES) == expected
    # The indexes stay as they are.
    assert INDEXES["events"].get_row_group_indexes(None) == {2, 3}


def test_a_selector_names_the_indexes_that_it_needs() -> None:
    assert CAR_OR_EVENTS.get_index_names() == ["vehicle", "events"]


def test_what_no_selector_can_mean_is_refused() -> None:
    with pytest.raises(ConfigError, match="as a list"):
        SingleIndexSelector("vehicle", "car_1")
    with pytest.raises(ConfigError, match="at least one"):
        UnionIndexSelector([])


# ------------------------------------------------------------------------------------ of datasets


def test_indexes_find_row_groups_of_a_dataset(drives: str) -> None:
    build_rowgroup_index(drives, None, [SingleFieldIndexer("by_car", "car")])
    build_rowgroup_index(drives, None, [FieldNotNullIndexer("with_event", "event")])

    def row_groups_of(car: str) -> list[int]:
        return select_row_groups(drives, SingleIndexSelector("by_car", [car]))

    with_event = select_row_groups(drives, SingleIndexSelector("with_event"))

    assert row_groups_of("car 0") == [0]
    assert row_groups_of("car 2") == [2]
    assert row_groups_of("nix") == []
    rows = ParquetDataset(drives, row_groups=with_event)
    assert rows.read_column("id").tolist() == list(range(15, 20))


def test_a_dataset_without_the_index_is_an_error(drives: str) -> None:
    build_rowgroup_index(drives, None, [SingleFieldIndexer("by_car", "car")])

    with pytest.raises(ConfigError, match=r"\['by_day'\] are not available in \['by_car'\]"):
        select_row_groups(drives, SingleIndexSelector("by_day", [1]))


def test_indexers_that_cannot_be_built_are_refused(drives: str) -> None:
    by_car = SingleFieldIndexer("by_car", "car")
    unknown: Any = "by_car"

    with pytest.raises(ConfigError, match="no field 'nix'"):
        build_rowgroup_index(drives, None, [SingleFieldIndexer("i", "nix")])
    with pytest.raises(ConfigError, match="two indexes have the same name"):
        build_rowgroup_index(drives, None, [by_car, by_car])
    with pytest.raises(ConfigError, match="use a predicate"):
        build_rowgroup_index(drives, None, [unknown])


def test_indexes_of_other_row_groups_are_refused(drives: str) -> None:
    build_rowgroup_index(drives, None, [SingleFieldIndexer("by_car", "car")])

    pq.write_table(pq.read_table(drives), Path(drives) / "part-000009.parquet", row_group_size=3)

    with pytest.raises(ConfigError, match=r"row groups.*build_rowgroup_index"):
        select_row_groups(drives, SingleIndexSelector("by_car", ["car 0"]))


def test_indexes_go_when_rows_are_appended(drives: str) -> None:
    build_rowgroup_index(drives, None, [SingleFieldIndexer("by_car", "car")])

    with ParquetWriter(drives) as writer:
        writer.append(ParquetDataset(drives)[19])

    with pytest.raises(ConfigError, match="no row-group indexes"):
        select_row_groups(drives, SingleIndexSelector("by_car", ["car 0"]))


# ------------------------------------------------------------------------------------ of Petastorm


def test_indexes_of_pyarrows_dataset_are_read(drives: str) -> None:
    names = ["id", "car", "tags", "when"]
    build_rowgroup_index(drives, None, [SingleFieldIndexer(name, name) for name in names])
    build_rowgroup_index(drives, None, [FieldNotNullIndexer("event", "event")])

    indexes = get_row_group_indexes(pq.ParquetDataset(drives))

    assert set(indexes) == {"id", "car", "tags", "when", "event"}
    assert indexes["car"].get_row_group_indexes("car 2") == {2}
    assert indexes["tags"].get_row_group_indexes(np.str_("t11")) == {2}
    assert indexes["event"].get_row_group_indexes() == {3}


def test_petastorm_finds_the_indexes_but_those_of_times(drives: str) -> None:
    names = ["id", "car", "tags", "when"]
    build_rowgroup_index(drives, None, [SingleFieldIndexer(name, name) for name in names])
    build_rowgroup_index(drives, None, [FieldNotNullIndexer("event", "event")])

    pickled = Footers(find_files(drives)).metadata[PICKLED_INDEXES_KEY]
    indexes = Unpickler(io.BytesIO(pickled)).load()

    columns = {name: index._column_name for name, index in indexes.items()}
    assert columns == {name: name for name in ("id", "car", "tags", "event")}
    assert indexes["id"]._index_data[np.int64(7)] == {1}
    assert indexes["id"]._index_data["no such"] == set()
    assert indexes["event"]._index_data == {3}
    assert read_pickled_indexes(pickled)["car"].row_groups["car 3"] == {3}


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
    changed_keys = {key for key in before if after.get(key) != before[key]}
    assert changed_keys <= {b"ARROW:schema", PICKLED_INDEXES_KEY}
    indexes_before = json_of_pickled_indexes(before)
    indexes_after = json_of_pickled_indexes(after)
    assert indexes_before.items() <= indexes_after.items()
    assert indexes_after.keys() - indexes_before.keys() == {"part", "odd"}
    assert [len(row_groups) for _, row_groups in indexes_after["part"]["values"]] == [1] * 10


def json_of_pickled_indexes(metadata: dict[bytes, bytes]) -> dict[str, Any]:
    indexes = read_pickled_indexes(metadata[PICKLED_INDEXES_KEY])
    return {name: index.to_json() for name, index in indexes.items()}
