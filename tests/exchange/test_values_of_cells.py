"""A value of a table is the same whether it is read by itself, with others, or below a
selection.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import data_stack
from data_stack.exception import ConfigError
from data_stack.formats.arrow_tables import JsonColumn
from data_stack.values.digests import sample_digest

_DAY = datetime.date(2020, 1, 2)
_COLUMNS: dict[str, list[Any]] = {
    "struct": [
        {"lang": "en", "n": 1, "x": 0.5, "ok": True},
        {"lang": None, "n": 2, "x": None, "ok": False},
    ],
    "struct or None": [{"a": 1}, None],
    "struct of lists": [{"a": [1, 2], "b": [{"c": "x"}]}, {"a": [], "b": None}],
    "struct of times": [{"day": _DAY}, {"day": None}],
    "struct of decimals": [{"d": Decimal("1.10")}, {"d": None}],
    "empty struct": [{}, {}],
    "texts": [["a", "b"], []],
    "text": ["a", None],
    "texts or None": [["a", None], None],
    "numbers": [[1, 2], [3]],
    "numbers or None": [[1, None], None],
    "floats": [[], [0.5]],
    "lists": [[[1], [2, 3]], []],
    "day": [_DAY, None],
}


@pytest.mark.parametrize("name", _COLUMNS)
def test_a_value_is_the_same_however_it_is_read(name: str) -> None:
    table = pa.table({"id": [7, 8], "v": _COLUMNS[name]})
    rows = data_stack.from_arrow(pa.concat_tables([table.slice(1), table])).skip(1)

    whole = rows.read_column("v")
    for position in (0, 1):
        alone = rows[position]["v"]
        together = rows.__getitems__([0, 1])[position]["v"]
        chosen = rows.select("v")[position]
        renamed = rows.shuffle(seed=1).select("v", "id").rename({"v": "w"}).sort("id").select("w")
        for value in (together, whole[position], chosen["v"], renamed[position]["w"]):
            assert sample_digest({"v": value}) == sample_digest({"v": alone})
            assert str(type(value)).replace("numpy.int64", "int") == str(type(alone))
        assert list(chosen) == ["v"]


def test_a_selection_reads_only_its_columns_of_a_sample() -> None:
    rows = data_stack.from_numpy({"a": np.arange(3), "b": np.arange(6).reshape(3, 2)}).in_memory()
    table = data_stack.from_arrow(pa.table({"a": [1, 2], "b": [[1.5], [2.5]]}), target="a")

    assert [rows.select("b")[1]["b"].tolist(), rows.select("a")[2]] == [[2, 3], {"a": 2}]
    assert table.select("b").select("b")[1]["b"].tolist() == [2.5]
    first = table.select("b", "a")[0]
    first["b"][0] = 9
    assert table.select("b", "a")[0]["b"].tolist() == [1.5]


def test_permuted_tensors_have_the_shape_of_their_values() -> None:
    type_ = pa.fixed_shape_tensor(pa.int32(), (2, 3), permutation=[1, 0])
    storage = pa.array([[1, 2, 3, 4, 5, 6]], pa.list_(pa.int32(), 6))
    tensors = pa.ExtensionArray.from_storage(type_, storage)

    iterator: Any = data_stack.from_arrow(pa.table({"x": tensors}))

    assert iterator[0]["x"].tolist() == [[1, 4], [2, 5], [3, 6]]
    assert iterator.column_types["x"] == "int32(3, 2)"


def test_permuted_axes_follow_the_format_of_arrow() -> None:
    # https://arrow.apache.org/docs/format/CanonicalExtensions.html#fixed-shape-tensor
    type_ = pa.fixed_shape_tensor(pa.int32(), (2, 3, 4), permutation=[2, 0, 1])
    storage = pa.array([list(range(24)), list(range(24, 48))], pa.list_(pa.int32(), 24))
    tensors = pa.ExtensionArray.from_storage(type_, storage)
    expected = np.arange(48).reshape(2, 2, 3, 4).transpose(0, 3, 1, 2)

    iterator: Any = data_stack.from_arrow(pa.table({"x": tensors}))
    table = iterator[[1, 0]].to_arrow()

    assert iterator[1]["x"].tolist() == expected[1].tolist()
    assert iterator.read_column("x").tolist() == expected.tolist()
    assert table["x"].combine_chunks().storage.to_pylist() == storage.to_pylist()[::-1]


def test_mapped_tensors_with_missing_elements_are_nested_lists() -> None:
    type_ = pa.fixed_shape_tensor(pa.float32(), (2, 2))
    storage = pa.array([[1, None, 3, 4], [5, 6, 7, 8]], pa.list_(pa.float32(), 4))
    tensors = pa.ExtensionArray.from_storage(type_, storage)

    iterator: Any = data_stack.from_arrow(pa.table({"x": tensors}))
    table = iterator.map(lambda sample: {"y": sample["x"]}).to_arrow()

    assert table["y"].to_pylist() == [[[1, None], [3, 4]], [[5, 6], [7, 8]]]


@pytest.mark.parametrize("text", ["{bad", "[" * 100_000, "1" * 5000], ids=len)
def test_a_cell_without_json_names_its_column(text: str) -> None:
    column = JsonColumn(pa.chunked_array([["{}", text]]), "doc")

    assert column.value(0) == {}
    with pytest.raises(ConfigError, match="column 'doc' has a cell"):
        column.value(1)
    with pytest.raises(ConfigError, match="column 'doc' has a cell"):
        column.read(None)
