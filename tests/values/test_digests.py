"""Digests: equal for equal samples, in every form, batch and process."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from layer_laws import object_column
from torch_or_stand_in import torch

from data_stack.exception import ConfigError
from data_stack.values.digests import DIGEST_BYTES, row_digests, sample_digest
from data_stack.values.stacking import stack_samples

RECORD = [("a", "i4"), ("b", "f4", 2)]
EQUAL: dict[str, list[Any]] = {
    "three": [
        3,
        3.0,
        np.uint8(3),
        np.float16(3),
        3 + 0j,
        torch.tensor(3),
        np.array(3, dtype=">i4"),
        Decimal(3),
    ],
    "zero": [0, -0.0, False, np.float32(-0.0), Decimal("-0")],
    "not a number": [
        math.nan,
        -math.nan,
        np.float32("nan"),
        np.longdouble("nan"),
        torch.tensor(math.nan),
        Decimal("nan"),
    ],
    "half": [0.5, np.longdouble(0.5), Decimal("0.5"), torch.tensor(0.5, dtype=torch.bfloat16)],
    "beyond 63 bits": [2**63, float(2**63), np.uint64(2**63), np.float32(2**63), Decimal(2**63)],
    "beyond 64 bits": [2**70, float(2**70), Decimal(2**70)],
    "beyond floats": [10**400 + 1, Decimal(10**400 + 1)],
    "fraction": [Decimal("1.10"), Decimal("1.1000")],
    "text": ["é", np.str_("é")],
    "bytes": [b"ab", bytearray(b"ab"), memoryview(b"ab"), np.bytes_(b"ab")],
    "numbers": [
        np.array([1, 2]),
        torch.tensor([1.0, 2.0]),
        np.array([1, 2], dtype=object),
        object_column(1, 2),
        [True, 2],
    ],
    "numbers beside NaN": [np.array([1, math.nan]), [1, math.nan], (1.0, math.nan)],
    "table": [
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        [[0, 1, 2], (3, 4, 5)],
    ],
    "day": [
        np.datetime64("2020-02-29"),
        np.datetime64("2020-02-29", "ns"),
        date(2020, 2, 29),
        pd.Timestamp("2020-02-29"),
    ],
    "days": [np.array(["2020-02-29"], dtype="M8[D]"), [np.datetime64("2020-02-29", "us")]],
    "before 1970": [
        np.datetime64("1969-12-31T23:59:59.5"),
        datetime(1969, 12, 31, 23, 59, 59, 500_000),
    ],
    "hour": [
        np.timedelta64(1, "h"),
        timedelta(hours=1),
        pd.Timedelta("1h"),
        np.timedelta64(6, ("m", 10)),
    ],
    "no time": [np.datetime64("NaT"), np.datetime64("NaT", "Y"), pd.NaT],
    "instant": [
        datetime(2020, 1, 1, tzinfo=timezone.utc),
        datetime(2020, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    ],
    "dict": [
        {"a": 1, "b": [2, 3]},
        {"b": np.array([2, 3]), "a": 1.0},
        np.array([(1, (2, 3))], dtype=RECORD)[0],
    ],
    "set": [{1, 2, 3}, frozenset([3, 2, 1])],
    "tuple of columns": [(1, "a"), [1, "a"], (np.int8(1), "a")],
    "ragged": [({"x": object_column(np.array([1, 2]), np.array([3]))},), ({"x": [[1, 2], [3]]},)],
    "empty": [np.empty((0, 3)), torch.empty((0, 3)), np.empty((0, 3), dtype=np.uint8)],
}

TEXTS: list[Any] = [
    "",
    b"",
    "1",
    b"1",
    "\0",
    "\0\0",
    "\ud800",
    None,
    (),
    {},
    set(),
    (None,),
    ("",),
    ("", ""),
]
NESTED: list[Any] = [
    ("ab", "c"),
    ("a", "bc"),
    ("abc",),
    (b"ab", "c"),
    ("ab", ("c",)),
    (("ab", "c"),),
    ("a", None),
    (None, "a"),
]
NESTED += [
    np.array([1, 2]),
    (1, 2),
    (1, 2, 0),
    ((1, 2),),
    np.array([[1, 2]]),
    np.array([[1], [2]]),
    {1},
    {"1"},
]
NESTED += [
    {"a": 1},
    {"b": 1},
    {"a": {"a": 1}},
    {"a": 1, "b": 1},
    np.empty(0),
    np.empty((0, 1)),
    np.empty((1, 0)),
]
NUMBERS: list[Any] = [
    0,
    1,
    -1,
    255,
    256,
    2**31,
    -(2**31),
    2**53,
    2**53 + 1,
    2**63,
    2**64,
    2**70,
    10**400 + 1,
    10**400 + 3,
]
NUMBERS += [0.1, np.float32(0.1), Decimal("0.1"), 1e300, math.inf, -math.inf, math.nan, 1j]
TIMES: list[Any] = [
    np.datetime64("2020-01-01"),
    datetime(2020, 1, 1, tzinfo=timezone.utc),
    np.datetime64("NaT"),
]
TIMES += [np.timedelta64(1, "s"), np.timedelta64(1, "M"), np.timedelta64("NaT")]
DIFFERENT = [*TEXTS, *NESTED, *NUMBERS, *TIMES]


@pytest.mark.parametrize("forms", EQUAL.values(), ids=EQUAL)
def test_equal_content_has_one_digest_in_every_form(forms: list[Any]) -> None:
    digests = {sample_digest(("x", form)) for form in forms}

    assert len(digests) == len({sample_digest({"x": ["y", form]}) for form in forms}) == 1
    assert len(digests.pop()) == DIGEST_BYTES


def test_different_content_has_different_digests() -> None:
    digests = [sample_digest(value) for value in DIFFERENT]

    same = [
        (DIFFERENT[i], DIFFERENT[j])
        for i in range(len(digests))
        for j in range(i)
        if digests[i] == digests[j]
    ]
    assert same == []


LONG = np.longdouble(1) + np.finfo(np.longdouble).eps  # equals a float64 on some machines
UNKNOWN = [
    object(),
    range(3),
    np.void(b"ab"),
    ("a", [object()]),
    {"a": pd.NA},
    np.ma.masked_array([1, 2], [True, False]),
]


@pytest.mark.parametrize("value", UNKNOWN if float(LONG) == LONG else [*UNKNOWN, LONG])
def test_an_object_of_unknown_content_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError):
        sample_digest(value)


numbers = (
    st.integers(-(2**70), 2**70)
    | st.floats(width=64)
    | st.floats(width=32)
    | st.booleans()
    | st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63, 2**64 - 1, 2**64, 255, 256, 32767, 32768])
)
scalars = numbers | st.none() | st.text(max_size=3) | st.binary(max_size=3)
arrays = hnp.arrays(
    st.sampled_from(
        ["u1", "i2", ">i4", "i8", "u8", "f2", "f4", ">f8", "?", "c8", "M8[s]", "m8[ns]", "U2", "S2"]
    ),
    st.sampled_from([(), (2,), (0,), (2, 2)]),
)
values = st.recursive(
    scalars | arrays,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(samples=st.lists(st.tuples(values, values), max_size=5))
def test_rows_of_a_batch_have_the_digests_of_their_samples(samples: list[tuple[Any, Any]]) -> None:
    expected = [sample_digest(sample) for sample in samples]
    stacked = stack_samples(samples)

    digests = row_digests(stacked)

    assert digests.shape == (len(samples), DIGEST_BYTES)
    assert [digest.tobytes() for digest in digests] == expected


def test_digests_stay_what_they_are() -> None:
    sample = (np.arange(6, dtype=np.uint8).reshape(2, 3), "label", 0.1, None, {"x": -1})

    assert sample_digest(sample).hex() == "1e0f6c8a65639e924ee17842911db602"
