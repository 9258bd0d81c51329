"""Distinct values and equality filters, which Arrow finds in the cells, equal what Python finds in the values."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator import InformedDatasetIterator, access_to
from data_stack.dataset.meta import MetaFactory
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet import ParquetDataset, col
from data_stack.formats.parquet.distinct import DistinctCells

#: Columns that Arrow compares as Python does, by their names.
COLUMNS: dict[str, pa.Array] = {
    "text": pa.array(["b", "a", "b", "", "ä", "a", "c"]),
    "large_text": pa.array(["b", "a", "b", "", "ä", "a", "c"], pa.large_string()),
    "encoded_text": pa.array(["b", "a", "b", "", "ä", "a", "c"]).dictionary_encode(),
    "missing_text": pa.array(["b", None, "b", "a", None, "a", ""]),
    "bytes": pa.array([b"b", b"a", b"\0", b"", b"b", b"\0", b"c"]),
    "integer": pa.array([3, 1, 3, -1, 2**62, 1, 2**62 + 1]),
    "small": pa.array([3, 1, 3, 0, 255, 1, 3], pa.uint8()),
    "missing_integer": pa.array([3, None, 3, 1, None, 1, 0], pa.int32()),
    "bool": pa.array([True, False, True, True, False, False, True]),
    "date": pa.array([date(2020, 1, day) for day in (3, 1, 3, 2, 1, 1, 3)]),
}
#: Columns that Arrow compares in another way, or not at all.
COMPARED_IN_PYTHON: dict[str, pa.Array] = {
    "float": pa.array([1.0, float("nan"), -0.0, 0.0, float("nan"), 1.0, 2.0]),
    "decimal": pa.array([1, 2, 1, 3, 1, 2, 1]).cast(pa.decimal128(20, 1)),
    "instant": pa.array([3, 1, 3, 2, 1, 1, 3]).view(pa.timestamp("us", "Europe/Berlin")),
    "list": pa.array([[1], [2], [1], [3], [1], [2], [1]]),
}


def open_columns(folder: Path, columns: dict[str, pa.Array]) -> ParquetDataset:
    """The columns in three row groups."""
    pq.write_table(pa.table(columns), folder / "a.parquet", row_group_size=3)
    return ParquetDataset(folder)


def distinct_in_python(values: list[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1), min_size=1), st.randoms()
)
def test_distinct_cells_are_those_of_a_dict(parts: list[list[str | None]], random: Any) -> None:
    values = [value for part in parts for value in part]
    places = list(range(len(values)))
    random.shuffle(places)
    at_places: list[Any] = [None] * len(values)
    distinct = DistinctCells(len(values))
    start = 0
    for part in parts:
        places_of_part = places[start : start + len(part)]
        for place, value in zip(places_of_part, part, strict=True):
            at_places[place] = value
        distinct.add(pa.array(part, pa.string()), np.array(places_of_part))
        start += len(part)

    cells, first = distinct.find()

    assert cells.to_pylist() == distinct_in_python(at_places)
    assert first.tolist() == [at_places.index(value) for value in cells.to_pylist()]


def test_large_parts_are_numbered_before_the_last_one_comes() -> None:
    texts = [f"{number:040,d}" for number in range(600_000)]
    distinct = DistinctCells(4 * len(texts))
    for part in range(4):
        cells = pa.array(texts if part % 2 else texts[::-1])
        distinct.add(cells, np.arange(part * len(texts), (part + 1) * len(texts)))

    assert distinct.n_bytes > 0  # the first two parts
    cells, first = distinct.find()

    assert cells.to_pylist() == texts[::-1]
    assert first.tolist() == list(range(len(texts)))


@pytest.mark.parametrize("name", COLUMNS)
def test_unique_values_are_those_of_the_samples(tmp_path: Path, name: str) -> None:
    dataset = open_columns(tmp_path, COLUMNS)
    column = dataset.read_column(name)

    unique = dataset.unique(name)

    assert access_to(dataset).distinct_values(name) is not None
    assert unique.dtype == column.dtype
    assert unique.tolist() == distinct_in_python(column.tolist())
    assert list(map(type, unique.tolist())) == list(map(type, distinct_in_python(column.tolist())))


@pytest.mark.parametrize("name", COLUMNS)
def test_views_have_the_unique_values_of_their_samples(tmp_path: Path, name: str) -> None:
    dataset = open_columns(tmp_path, COLUMNS)
    view = dataset[[6, 1, 4, 1, 0]]

    assert view.unique(name).tolist() == distinct_in_python(view.read_column(name).tolist())
    kept = view.deduplicate(by=name).read_column(name).tolist()
    assert kept == distinct_in_python(view.read_column(name).tolist())


def test_a_filtered_dataset_has_the_unique_values_of_its_rows(tmp_path: Path) -> None:
    open_columns(tmp_path, COLUMNS)

    dataset = ParquetDataset(tmp_path, filters=col("integer") > 2)

    assert dataset.unique("text").tolist() == ["b", "ä", "c"]
    assert dataset.shuffle(seed=1).unique("text").size == 3


def test_names_of_layers_lead_to_the_column(tmp_path: Path) -> None:
    dataset = open_columns(tmp_path, COLUMNS)
    renamed = dataset.rename({"text": "letter", "bytes": "text"})

    assert renamed.unique("letter").tolist() == ["b", "a", "", "ä", "c"]
    assert renamed.unique("text").tolist() == [b"b", b"a", b"\0", b"", b"c"]
    assert access_to(renamed).distinct_values("letter") is not None


def test_an_informed_dataset_asks_its_source(tmp_path: Path) -> None:
    meta = MetaFactory.get_iterator_meta(sample_pos="text", target_pos="integer", tag_pos="bool")
    dataset_meta = MetaFactory.get_dataset_meta(
        identifier="x", dataset_name="x", dataset_tag="x", iterator_meta=meta
    )
    informed = InformedDatasetIterator(open_columns(tmp_path, COLUMNS), dataset_meta)

    assert informed.unique().tolist() == [3, 1, -1, 2**62, 2**62 + 1]
    assert access_to(informed).distinct_values("text") is not None


@pytest.mark.parametrize("name", COMPARED_IN_PYTHON)
def test_what_arrow_compares_otherwise_is_left_to_python(tmp_path: Path, name: str) -> None:
    dataset = open_columns(tmp_path, COMPARED_IN_PYTHON)

    assert access_to(dataset).distinct_values(name) is None
    assert len(dataset.unique(name)) == (4 if name == "float" else 3)


def test_nulls_read_as_nan_are_left_to_python(tmp_path: Path) -> None:
    open_columns(tmp_path, COLUMNS)
    dataset = ParquetDataset(tmp_path, nulls="nan")

    assert access_to(dataset).distinct_values("missing_integer") is None
    np.testing.assert_array_equal(dataset.unique("missing_integer"), [3.0, np.nan, 1.0, 0.0])


def test_an_unknown_column_has_no_unique_values(tmp_path: Path) -> None:
    dataset = open_columns(tmp_path, COLUMNS)

    with pytest.raises(ConfigError, match="nope"):
        dataset.unique("nope")


def test_an_empty_dataset_has_no_unique_values(tmp_path: Path) -> None:
    open_columns(tmp_path, COLUMNS)
    dataset = ParquetDataset(tmp_path, filters=col("text") == "nowhere")

    assert dataset.unique("text").tolist() == []
    assert dataset.unique("small").dtype == np.uint8


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("text", "==", "b")], [0, 2]),
        ([("text", "in", ["ä", "c"])], [4, 6]),
        ([("large_text", "==", "a")], [1, 5]),
        ([("encoded_text", "!=", "b")], [1, 3, 4, 5, 6]),
        ([("missing_text", "==", "b")], [0, 2]),
        (col("missing_text").is_null(), [1, 4]),
        ([("bytes", "==", b"\0")], [2, 5]),
        ([("small", "==", 255)], [4]),
        ([("missing_integer", "<", 3)], [3, 5, 6]),
        ([("date", "==", np.datetime64("2020-01-02"))], [3]),
        ([("bool", "==", True), ("text", "==", "b")], [0, 2]),
    ],
)
def test_filters_select_rows_by_their_cells(tmp_path: Path, filters: Any, expected: Any) -> None:
    open_columns(tmp_path, {"row": pa.array(range(7)), **COLUMNS})

    dataset = ParquetDataset(tmp_path, columns=["row"], filters=filters)

    assert dataset.read_column("row").tolist() == expected


def test_a_filter_may_need_cells_and_values(tmp_path: Path) -> None:
    columns = {"row": pa.array(range(7)), **COLUMNS, **COMPARED_IN_PYTHON}
    open_columns(tmp_path, columns)

    dataset = ParquetDataset(tmp_path, filters=(col("text") != "b") & (col("float") == 0.0))

    assert dataset.read_column("row").tolist() == [3]


@pytest.fixture
def folder_of_damaged_text(tmp_path: Path) -> Path:
    """A column of texts, the last of which is not UTF-8."""
    data = pa.py_buffer(b"abcab\xff")
    offsets = pa.py_buffer(np.array([0, 3, 6], np.int32))
    damaged = pa.Array.from_buffers(pa.string(), 2, [None, offsets, data])
    pq.write_table(pa.table({"text": damaged}), tmp_path / "a.parquet")
    return tmp_path


def test_invalid_text_is_damage_also_in_a_filter(folder_of_damaged_text: Path) -> None:
    with pytest.raises(DatasetFileCorruptError, match=r"row group 0 of .*a\.parquet, field 'text'"):
        len(ParquetDataset(folder_of_damaged_text, filters=col("text") == "abc"))


def test_invalid_text_is_damage_also_among_unique_values(folder_of_damaged_text: Path) -> None:
    with pytest.raises(DatasetFileCorruptError, match="text"):
        ParquetDataset(folder_of_damaged_text).unique("text")
