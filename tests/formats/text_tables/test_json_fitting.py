"""What pyarrow says of JSON lines is what Python's parser says; in doubt, it says nothing."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.formats.text_tables.json_fitting import count_present
from data_stack.formats.text_tables.json_shapes import join_shapes, keys_in, shape_of
from data_stack.formats.text_tables.json_types import JSON

_STRUCT = pa.struct([("x", pa.int64()), ("y", pa.string())])


def count(text: str, type_: Any, shape: pa.DataType | None = None) -> int | None:
    """The number of values of the key "a" that are not null; None if pyarrow is in doubt."""
    n_present = count_present(text.encode(), {"a": type_}, {"a": shape})
    return None if n_present is None else n_present["a"]


# ---------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1.5}\n{"a": 0.0}\n{"a": -0}\n{}', 3),
        ('{"a": 5e-324}', 1),
        ('{"a": 1e-400}', None),
        ('{"a": 1E-400}', None),
        ('{"a": 1e-0400}', None),
        ('{"a": 0.%s1}' % ("0" * 400), None),
        ('{"a": 1e400}', None),
        ('{"a": 9007199254740993}', None),
    ],
)
def test_numbers_that_float64_rounds_away_are_in_doubt(text: str, expected: int | None) -> None:
    assert count(text, pa.float64()) == expected


def test_the_text_of_tiny_numbers_beside_no_zero_is_exact() -> None:
    assert count('{"a": 1.5, "t": "1e-400"}', pa.float64()) is None  # an unknown key
    n_present = count_present(
        b'{"a": 1.5, "t": "1e-400"}', {"a": pa.float64(), "t": pa.string()}, {}
    )
    assert n_present == {"a": 1, "t": 1}


# ---------------------------------------------------------------------- nulls in objects


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": {"x":1,"y":null}}\n{"a": {"x":null,"y":"b"}}\n{"a": null}', 2),
        ('{"a": {"x":1,"y":null}}\n{"a": {"x":1}}', None),
        ('{"a": {"x":1,"y":null}}\n{"a": {"y":"\\"x\\":"}}', None),
        ('{"a": {"x":1,"y":null}}\n{"a": {"y":"x"}}', None),
        # A space before the colon: the key is not found by a search.
        ('{"a": {"x" :null,"y":"b"}}', None),
    ],
)
def test_a_null_is_no_missing_key(text: str, expected: int | None) -> None:
    assert count(text, _STRUCT) == expected


def test_a_nested_key_named_like_a_column_is_counted_too() -> None:
    types = {"a": _STRUCT, "x": pa.int64()}

    assert count_present(b'{"a": {"x":null,"y":"b"}, "x":1}', types, {}) == {"a": 1, "x": 1}
    assert count_present(b'{"a": {"y":"b"}, "x":1}', types, {}) is None
    # Either of the two keys may be missing.
    assert count_present(b'{"a": {"x":null,"y":"b"}}', types, {}) is None


def test_keys_that_end_with_another_key_are_in_doubt() -> None:
    type_ = pa.struct([("x", pa.int64()), ('"x', pa.int64())])

    assert count('{"a": {"\\"x":1}}', type_) is None


def test_objects_in_lists_are_counted() -> None:
    type_ = pa.list_(_STRUCT)

    assert count('{"a": [{"x":1,"y":null},{"x":null,"y":"b"}]}\n{"a": []}', type_) == 2
    assert count('{"a": [{"x":1,"y":null},{"x":1}]}', type_) is None


# ---------------------------------------------------------------------- JSON text


_MEMBERS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(st.sampled_from(["x", "y", "z", "é"]), _MEMBERS, max_size=3)


@given(st.lists(_OBJECTS, min_size=1, max_size=5), st.lists(_OBJECTS, min_size=1, max_size=5))
def test_values_that_fit_a_shape_are_objects(first: list[Any], second: list[Any]) -> None:
    shape = shape_of(first)
    text = "\n".join(json.dumps({"a": value}) for value in second)

    n_present = count(text, JSON, shape)

    if n_present is not None:
        assert n_present == len(second)
        assert shape is not None
        keys = set(keys_in(shape))
        assert all(keys.issuperset(value) for value in second)


def test_missing_keys_fit_a_shape() -> None:
    shape = shape_of([{"x": 1}, {"y": [{"z": "t"}]}])

    assert count('{"a": {"x": 5}}\n{"a": {"y": [{}]}}\n{"a": null}', JSON, shape) == 2
    assert count('{"a": {"x": "text"}}', JSON, shape) is None
    assert count('{"a": {"other": 1}}', JSON, shape) is None
    assert count('{"a": {"x": 1, "x": 2}}', JSON, shape) is None
    assert count('{"a": 1}', JSON, shape) is None


@pytest.mark.parametrize("number", ["1e400", "1e-400", "-1e999"])
def test_numbers_of_json_text_that_are_refused_are_in_doubt(number: str) -> None:
    shape = shape_of([{"x": 1.5}, {}])

    assert count(f'{{"a": {{"x": {number}}}}}', JSON, shape) is None
    assert count('{"a": {"x": 1e300}}', JSON, shape) == 1


@pytest.mark.parametrize(
    "values",
    [
        [{"x": 1}, [1]],
        [{"x": 1}, {"x": "t"}],
        [{}, {"x": {}}],
        [{f"k{number}": 1} for number in range(300)],
        [{"x": [{f"k{number}": 1} for number in range(300)]}],
    ],
)
def test_values_without_a_usable_type_have_no_shape(values: list[Any]) -> None:
    assert shape_of(values) is None


def test_shapes_are_joined() -> None:
    joined = join_shapes(shape_of([{"x": 1}]), shape_of([{"y": 1.5}, {"x": 1.5}]))

    assert joined == pa.struct([("x", pa.float64()), ("y", pa.float64())])
    assert join_shapes(pa.null(), _STRUCT) == _STRUCT
    assert join_shapes(_STRUCT, shape_of([{"x": "t"}])) is None
    assert join_shapes(_STRUCT, pa.list_(pa.int64())) is None
    assert join_shapes(None, _STRUCT) is None


def test_objects_that_need_many_cells_are_in_doubt() -> None:
    shape = shape_of([{f"k{number}": 1 for number in range(200)}])
    text = '{"a": {"k0": 1}}\n'

    assert count(text * 10, JSON, shape) == 10
    assert count(text * 30_000, JSON, shape) is None
