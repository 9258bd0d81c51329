"""Values of a column as Arrow cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from data_stack.exception import ConfigError
from data_stack.exchange.tables.cells import cells_of
from data_stack.formats.arrow_tables import JSON_TEXT, Origin
from data_stack.values.stacked_values import objects

_MATRICES = objects([np.ones((1, 2)), np.ones((3, 1))])


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (np.array([1, 2], np.int8), pa.int8()),
        (np.zeros((2, 3, 4), ">f4"), pa.list_(pa.list_(pa.float32(), 4), 3)),
        (np.zeros((2, 3, 0)), pa.list_(pa.list_(pa.float64()))),
        (_MATRICES, pa.list_(pa.list_(pa.float64()))),
        (objects([1, None]), pa.int64()),
        (objects([{"a": "x"}]), pa.struct([("a", pa.string())])),
    ],
)
def test_a_type_is_inferred_from_the_values(values: Any, type_: pa.DataType) -> None:
    cells = cells_of(values, "x")

    assert cells.type == type_
    assert len(cells) == len(values)


def test_values_of_json_become_compact_text() -> None:
    cells = cells_of(objects([{"a": [1, "é"]}, None]), "x", Origin(None, kind=JSON_TEXT))

    assert cells.to_pylist() == ['{"a":[1,"é"]}', None]


@pytest.mark.parametrize("as_codes", [True, False])
def test_categories_keep_their_order_and_nulls(as_codes: bool) -> None:
    values = objects([1, None, 0] if as_codes else ["b", None, "a"])
    categories = pa.array(["a", "b"])
    field = pa.field("x", pa.dictionary(pa.int8(), pa.string(), ordered=True))

    cells = cells_of(values, "x", Origin(field, categories, as_codes))

    assert cells.type == field.type
    assert cells.indices.to_pylist() == [1, None, 0]
    assert cells.to_pylist() == ["b", None, "a"]


def test_an_unfit_value_is_named_by_its_row() -> None:
    values = objects([1, "a"])

    with pytest.raises(ConfigError, match="'x' cannot be converted to Arrow: row 11: "):
        cells_of(values, "x", Origin(pa.field("x", pa.int64())), first_row=10)
