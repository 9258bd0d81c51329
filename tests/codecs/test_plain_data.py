"""Values become plain JSON data and come back as they were; what a stranger wrote makes values or a
ConfigError.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st
from layer_laws import exact

from data_stack.codecs.plain_data import canonical_json, from_plain, to_plain
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError


class Colour(IntEnum):
    RED = 1


texts_of_arrays = np_st.unicode_string_dtypes(min_len=1, max_len=3) | np_st.byte_string_dtypes(
    min_len=1, max_len=3
)
dtypes = (np_st.scalar_dtypes() | texts_of_arrays).map(lambda dtype: dtype.newbyteorder("<"))
arrays = dtypes.flatmap(
    lambda dtype: np_st.arrays(
        dtype, np_st.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7)
    )
)
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=5), arrays,
    arrays.filter(lambda array: array.size).map(lambda array: array.ravel()[0]),
    st.tuples(st.integers(-9, 9), st.integers(-9, 9), st.integers(-3, 3).filter(bool)).map(lambda ends: range(*ends)),
    st.frozensets(st.integers() | st.text(max_size=3), max_size=3),
)  # fmt: skip
keys = st.integers() | st.text(max_size=3) | st.tuples(st.integers(), st.text(max_size=2))
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values)
@example(np.float64("nan"))
@example({1: {2: [3, (4,)]}, "": b""})
@example(np.array(["", "ü\0x"]))
@example(np.array([[1, 2], [3, 4]], dtype=np.int16).T)
@example(np.zeros((0, 3)))
@example(np.array("2020-01-01", dtype="M8[25s]"))
@example(np.array([None, [1], np.arange(3)], dtype=object))
@example(10**400)
@example("\ud800")
def test_what_was_written_is_read_as_it_was(value: Any) -> None:
    data = json.loads(json.dumps(to_plain(value), allow_nan=False))

    assert exact(from_plain(data)) == exact(value)
    assert canonical_json(to_plain(from_plain(data))) == canonical_json(data)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (1.5, 1.5),
        (math.inf, {"float": "inf"}),
        ((1, "a"), {"tuple": [1, "a"]}),
        ({"a": [1]}, {"dict": [["a", [1]]]}),
        ({3, 1, 2}, {"set": [1, 2, 3]}),
        (range(2, 8), {"range": [2, 8, 1]}),
        (slice(1, None, -1), {"slice": [1, None, -1]}),
        (b"\xff", {"bytes": "/w=="}),
        (np.int32(7), {"scalar": "k6M8aTSQxAQHAAAA"}),
        (np.array([1.5], dtype=">f4"), {"array": "k6M8ZjSRAcQEAADAPw=="}),
    ],
)
def test_the_form_is_fixed(value: Any, plain: Any) -> None:
    assert to_plain(value) == plain
    assert canonical_json(to_plain(from_plain(plain))) == canonical_json(plain)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (object(), "builtins.object"),
        ([len], "builtin_function_or_method"),
        (Colour.RED, "Colour"),
        (np.ma.masked_array([1, 2], [True, False]), "MaskedArray"),
        (np.zeros(2, dtype="i4,f4"), "ndarray"),
        (np.array([object()]), "object"),
        (range(2**70), "too long to be plain data"),
    ],
)
def test_other_types_are_refused_by_name(value: Any, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        to_plain(value)


def nested(wrap: Callable[[Any], Any], depth: int) -> Any:
    data: Any = 1
    for _ in range(depth):
        data = wrap(data)
    return data


@pytest.mark.parametrize(
    "wrap",
    [lambda data: [data], lambda data: {"tuple": [data]}, lambda data: {"dict": [[1, data]]}],
)
def test_depth_is_bounded_and_not_by_the_stack_of_python(wrap: Callable[[Any], Any]) -> None:
    from_plain(nested(wrap, 30))
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(ConfigError, match="nested more than 100 levels deep"):
        from_plain(nested(wrap, 100_000))
    with pytest.raises(ConfigError, match="nested more than 100 levels deep"):
        to_plain(endless)


def array_text(dtype: str, shape: list[int], data: bytes) -> str:
    return base64.b64encode(msgpack.packb([dtype, shape, data])).decode()


DAMAGED = [
    {},
    {"range": [0, 1, 0]},
    {"range": [0, 1.5, 1]},
    {"range": [0, 10**30, 1]},
    {"slice": [1]},
    {"tuple": "ab"},
    {"dict": [[1, 2], [1, 3]]},
    {"dict": [[[1], 2]]},
    {"float": ["nan"]},
    {"bytes": "ä"},
    {"unknown": 1},
    math.nan,
    {"array": {"dtype": "<i4", "shape": [1], "values": [1]}},
    {"array": "AAAA"},
    {"array": array_text("|O", [1], bytes(8))},
    {"array": array_text("i4,i4", [1], bytes(8))},
    {"array": array_text("<U999999999", [9], b"")},
    {"array": array_text("<U1", [1], b"\xff" * 4)},
    {"array": array_text("|b1", [1], b"\2")},
    {"array": array_text("<i4", [0, 2**61, 2**61], b"\0")},
    {"array": array_text("<i4", [2**40, 2**40], bytes(4))},
    {"scalar": array_text("<i4", [1], bytes(4))},
    {"objects": {"shape": [2], "values": [1]}},
]


@pytest.mark.parametrize("data", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_data_is_refused(data: Any) -> None:
    with pytest.raises(ConfigError, match="plain data"):
        from_plain([data])


kinds = st.sampled_from(
    ["array", "scalar", "objects", "dict", "tuple", "set", "range", "bytes", "shape", "values"]
)
texts = st.text(max_size=5) | st.sampled_from(["AAAA", "nan", "k6M8aTSQxAQHAAAA"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(kinds | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_makes_a_value_or_a_config_error(data: Any) -> None:
    try:
        value = from_plain(data)
    except ConfigError:
        return

    assert canonical_json(to_plain(from_plain(to_plain(value)))) == canonical_json(to_plain(value))


@pytest.mark.parametrize("exponent", [1, 8191, 8193, 16_000])
def test_integers_of_thousands_of_digits_come_back(exponent: int) -> None:
    number = -(2**exponent)
    data = json.dumps(to_plain([number, 5]))

    assert from_plain(json.loads(data)) == [number, 5]
    assert len(SequenceDatasetIterator([[number]]).fingerprint()) == 64
