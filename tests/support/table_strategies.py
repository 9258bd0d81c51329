"""Tables of all types, drawn by hypothesis, for tests that compare libraries; how many are drawn;
and their exact values.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from sizes import FULL, sized

_Test = TypeVar("_Test", bound=Callable[..., None])
EXAMPLES = int(os.environ.get("DATA_STACK_EXAMPLES") or sized(5, 120))


def compared(test: _Test) -> _Test:
    """A differential test: a few examples, always the same, in ``make test``; as many as wanted in
    ``make test-full``.
    """
    phases, checks = set(Phase) - {Phase.explain}, list(HealthCheck)
    sizes = settings(
        max_examples=EXAMPLES,
        derandomize=not FULL,
        deadline=None,
        suppress_health_check=checks,
        phases=phases,
    )
    return cast(_Test, pytest.mark.timeout(300 + EXAMPLES)(sizes(test)))


NAMES = ["x", "a.b", "ü", 'o\'d: "name"', "select", "日本 語", "x_is_nul", "list.element"]
"""Names of columns; those of libraries without upper and lower case differ, too."""

_DAY, _LONG = 86_400, "ab" * 60
_FIRST, _LAST = (
    -719_162 * _DAY,
    2_932_897 * _DAY - 1,
)  # the seconds of the years 1 to 9999, which Python's times have
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _integers(lowest: int, highest: int) -> st.SearchStrategy[int]:
    near = st.integers(max(lowest, -2), min(highest, 2))
    return near | st.sampled_from([lowest, highest]) | st.integers(lowest, highest)


def _floats(width: Any) -> st.SearchStrategy[float]:
    hard = [float("nan"), 0.0, -0.0, float("inf"), float("-inf"), 1.0, 0.5]
    return st.sampled_from(hard) | st.floats(width=width)


def _times(unit: str, inside: int = 0) -> st.SearchStrategy[int]:
    """Ticks since 1970: of the years 1 to 9999, those of nanoseconds from 1677 to 2262, but for
    some seconds at both ends.
    """
    factor, edge = _UNITS[unit], inside * _UNITS[unit]
    # not the first nanoseconds, whose full second is out of range: pyarrow cannot read their text
    lowest, highest = (
        max(_FIRST * factor, 10**9 - 2**63) + edge,
        min((_LAST + 1) * factor - 1, 2**63 - 1) - edge,
    )
    return st.sampled_from([0, -1, 1, 1_582_934_400 * factor, lowest, highest]) | st.integers(
        lowest, highest
    )


TEXT = st.sampled_from(
    ["", "a", "b", "é", "e\u0301", "nan", "NULL", "None", "0", _LONG, _LONG + "c"]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)

INTEGERS: dict[Any, st.SearchStrategy[Any]] = {
    type_: _integers(-(2 ** (type_.bit_width - 1)), 2 ** (type_.bit_width - 1) - 1)
    for type_ in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
} | {
    type_: _integers(0, 2**type_.bit_width - 1)
    for type_ in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
}
FLOATS: dict[Any, st.SearchStrategy[Any]] = {pa.float32(): _floats(32), pa.float64(): _floats(64)}
TEXTS: dict[Any, st.SearchStrategy[Any]] = {
    pa.string(): TEXT,
    pa.large_string(): TEXT,
    pa.binary(): st.binary(max_size=5) | st.just(b"\xff" * 70),
    pa.dictionary(pa.int8(), pa.string()): TEXT,
}
TIMES: dict[Any, st.SearchStrategy[Any]] = {
    pa.date32(): st.sampled_from([0, -1, 18_321]) | st.integers(_FIRST // _DAY, _LAST // _DAY),
    **{pa.timestamp(unit): _times(unit) for unit in _UNITS},
    pa.timestamp("us", "UTC"): _times("us"),
    pa.timestamp("ns", "Asia/Kathmandu"): _times(
        "ns", _DAY
    ),  # pandas also has the local time, of the same range
    pa.timestamp("ms", "Europe/Rome"): _times("ms", _DAY),
    pa.timestamp("s", "-07:30"): _times("s", _DAY),
}
SPANS: dict[Any, st.SearchStrategy[Any]] = {
    # polars has milliseconds instead of seconds, and takes other values where they do not fit
    **{
        pa.duration(unit): _integers(-most, most)
        for unit, most in (dict.fromkeys(_UNITS, 2**63 - 1) | {"s": 2**53}).items()
    },
    pa.time32("s"): st.integers(0, _DAY - 1),
    pa.time32("ms"): st.integers(0, _DAY * 10**3 - 1),
    pa.time64("us"): st.integers(0, _DAY * 10**6 - 1),
    pa.time64("ns"): st.integers(0, _DAY * 10**9 - 1),
    pa.date64(): st.integers(_FIRST // _DAY, _LAST // _DAY).map(lambda day: day * _DAY * 1000),
}
DECIMALS: dict[Any, st.SearchStrategy[Any]] = {
    pa.decimal128(5, 2): st.decimals(-999, 999, places=2),
    pa.decimal128(38, 18): st.decimals(-(10**19), 10**19, places=18),
    pa.decimal256(50, 10): st.decimals(-(10**39), 10**39, places=10),
}
SCALARS = {pa.bool_(): st.booleans(), **INTEGERS, **FLOATS, **TEXTS, **TIMES, **DECIMALS}
"""Types that all libraries have, with the values of each: numbers of times are ticks."""


def _or_none(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def _lists(values: st.SearchStrategy[Any], **sizes: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, **(sizes or {"max_size": 3}))  # type: ignore[arg-type]  # sizes


_POINT = pa.struct(
    [("x", pa.int32()), ("when", pa.timestamp("us")), ("tags", pa.list_(pa.string()))]
)
_MOMENTS = st.integers(0, 2**50)
LISTS: dict[Any, st.SearchStrategy[Any]] = {
    pa.list_(pa.int16()): _lists(INTEGERS[pa.int16()]),
    pa.list_(pa.float64()): _lists(_or_none(_floats(64))),
    pa.large_list(pa.string()): _lists(_or_none(TEXT)),
    pa.list_(pa.bool_(), 3): _lists(st.booleans(), min_size=3, max_size=3),
    pa.list_(pa.float32(), 2): _lists(_floats(32), min_size=2, max_size=2),
    pa.list_(pa.list_(pa.uint8(), 3), 2): _lists(
        _lists(st.integers(0, 255), min_size=3, max_size=3), min_size=2, max_size=2
    ),
    pa.list_(pa.timestamp("us")): _lists(_MOMENTS),
    pa.list_(pa.list_(pa.string())): _lists(_or_none(_lists(TEXT))),
}
STRUCTS: dict[Any, st.SearchStrategy[Any]] = {
    _POINT: st.fixed_dictionaries(
        {
            "x": _or_none(INTEGERS[pa.int32()]),
            "when": _or_none(_MOMENTS),
            "tags": _or_none(_lists(TEXT)),
        }
    ),
    pa.list_(_POINT): _lists(
        st.fixed_dictionaries(
            {"x": st.integers(0, 9), "when": st.none(), "tags": _or_none(_lists(TEXT))}
        )
    ),
    pa.struct([("only", pa.struct([("b", pa.bool_())]))]): st.fixed_dictionaries(
        {"only": _or_none(st.fixed_dictionaries({"b": _or_none(st.booleans())}))}
    ),
}


def _parquet_takes(view: Any) -> bool:
    """Whether this pyarrow writes a view; old ones do not."""
    with contextlib.suppress(pa.ArrowNotImplementedError):
        pq.write_table(pa.table({"x": pa.array([], view)}), io.BytesIO())
        return True
    return False


_VIEWS = {pa.string_view(): TEXT, pa.binary_view(): st.binary(max_size=20)}
RARE: dict[Any, st.SearchStrategy[Any]] = {
    **SPANS,
    pa.float16(): _floats(16).map(np.float16),  # as old pyarrow wants them
    **{view: drawn for view, drawn in _VIEWS.items() if _parquet_takes(view)},
    pa.large_binary(): st.binary(max_size=5),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.dictionary(pa.int32(), pa.int64()): INTEGERS[pa.int64()],
    pa.dictionary(pa.uint8(), pa.large_string(), ordered=True): TEXT,
    pa.map_(pa.string(), pa.int64()): st.dictionaries(
        TEXT, _or_none(INTEGERS[pa.int64()]), max_size=2
    ).map(lambda it: list(it.items())),
    pa.null(): st.none(),
}
ALL = {**SCALARS, **LISTS, **STRUCTS, **RARE}


def cells(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Cells of a type, also of views, of which pyarrow makes none of some values."""
    if pa.types.is_dictionary(type_):
        return pa.array(values, type_.value_type).dictionary_encode().cast(type_)
    return pa.array(values, type_)


@st.composite
def tables(
    draw: st.DrawFn,
    types: Iterable[Any] = tuple(ALL),
    *,
    max_rows: int = 6,
    max_columns: int = 4,
    with_nulls: bool = True,
    with_nan: bool = True,
    names: Sequence[str] = tuple(NAMES),
) -> pa.Table:
    """A table, maybe without rows, in one chunk or two. Values repeat often; a column may have
    nulls, or nothing else.

    Args:
        draw: hypothesis's.
        types: of the columns, of :data:`ALL`.
        max_rows, max_columns: limits; there is a column at least.
        with_nulls, with_nan: whether there may be any.
        names: of the columns.
    """
    n_rows = draw(st.integers(0, max_rows))
    chosen = draw(st.lists(st.sampled_from(list(types)), min_size=1, max_size=max_columns))
    columns = {}
    for name, type_ in zip(names, chosen, strict=False):
        values = (
            ALL[type_]
            if with_nan or not pa.types.is_floating(type_)
            else ALL[type_].filter(lambda value: value == value)
        )
        pool = draw(st.lists(values, min_size=1, max_size=4))
        pool = [*pool, None] if with_nulls and draw(st.booleans()) else pool
        columns[name] = cells(
            draw(st.lists(st.sampled_from(pool), min_size=n_rows, max_size=n_rows)), type_
        )
    table = pa.table(columns)
    cut = draw(st.integers(0, n_rows))
    return pa.concat_tables([table.slice(0, cut), table.slice(cut)])


def exact(column: Any) -> list[str]:
    """The cells of a column as text, equal for the same values only: NaN is not null, nor -0.0 the
    same as 0.0.

    Times are ticks, whichever zone they are shown in; a dictionary or view counts as its values.
    """
    type_ = column.type
    if pa.types.is_dictionary(type_):
        column = column.cast(type_.value_type)
    elif pa.types.is_temporal(type_):
        column = column.cast(pa.int32() if type_.bit_width == 32 else pa.int64())
    return list(map(repr, column.to_pylist()))


def exact_rows(table: pa.Table) -> dict[str, list[str]]:
    """All cells, by the names of their columns."""
    return {name: exact(table.column(name)) for name in table.column_names}
