"""A fingerprint is identity, not equality: whatever a function could tell apart has another one."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import functools
import importlib.util
import pathlib
import re
import subprocess
import sys
import uuid
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from left_out import needs_torch
from PIL import Image
from torch_or_stand_in import torch

import data_stack
from data_stack import InMemoryDatasetIterator, SequenceDatasetIterator
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.recipes.stability import instability_reason
from data_stack.exception import ConfigError

UTC = datetime.timezone.utc
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
NOON = datetime.datetime(2024, 7, 1, 12)


class Point(NamedTuple):
    x: int
    y: int


class Swapped(NamedTuple):
    y: int
    x: int


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Level(enum.IntEnum):
    LOW = 1


def image(mode: str, *, palette: list[int] | None = None, value: int = 1, **info: Any) -> Any:
    made = Image.new(mode, (2, 1), value)
    if palette is not None:
        made.putpalette(palette * 256)
    made.info.update(info)
    return made


def objects(*values: Any) -> Any:
    array = np.empty(len(values), object)
    array[:] = values
    return array


NUMBERS: list[Callable[[], Any]] = [
    lambda: None, lambda: False, lambda: True, lambda: 0, lambda: 1, lambda: 0.0, lambda: -0.0, lambda: 1.0, lambda: 1j,
    lambda: complex(-0.0, 1.0), lambda: complex(1), lambda: "1", lambda: b"1", lambda: "", lambda: b"", lambda: 2**64,
    lambda: float("nan"), lambda: float("inf"), lambda: bytearray(b"1"), lambda: ..., lambda: NotImplemented,
    lambda: np.bool_(True), lambda: np.int8(1), lambda: np.uint8(1), lambda: np.int64(1), lambda: np.float16(1),
    lambda: np.float32(1), lambda: np.float64(1), lambda: np.complex64(1), lambda: np.str_("1"), lambda: np.bytes_(b"1"),
    lambda: np.datetime64("2024-07-01"), lambda: np.datetime64("2024-07-01", "s"), lambda: np.timedelta64(1, "s"),
    lambda: np.timedelta64(1, "D"), lambda: np.void(b"1"),
    lambda: decimal.Decimal("1"), lambda: decimal.Decimal("1.0"), lambda: decimal.Decimal("1.00"),
    lambda: decimal.Decimal("1E+1"), lambda: decimal.Decimal("10"), lambda: decimal.Decimal("NaN"),
    lambda: decimal.Decimal("sNaN"), lambda: decimal.Decimal("Infinity"), lambda: decimal.Decimal("-0"),
    lambda: decimal.Decimal("0"), lambda: fractions.Fraction(1), lambda: fractions.Fraction(1, 2),
]  # fmt: skip

CONTAINERS: list[Callable[[], Any]] = [
    list, tuple, dict, set, frozenset, lambda: [1], lambda: (1,), lambda: {1}, lambda: frozenset({1}), lambda: {1: 1},
    lambda: [[1]], lambda: [(1,)], lambda: {"tuple": [1]}, lambda: {"list": 1}, lambda: [None], lambda: {"a": 1, "b": 2},
    lambda: {"b": 2, "a": 1}, lambda: collections.OrderedDict(a=1, b=2), lambda: collections.OrderedDict(b=2, a=1),
    lambda: collections.defaultdict(int, a=1, b=2), lambda: collections.defaultdict(list, a=1, b=2),
    lambda: collections.Counter(a=1, b=2), lambda: collections.deque([1]), lambda: collections.deque([1], 3),
    lambda: Point(1, 2), lambda: Swapped(1, 2), lambda: (1, 2), lambda: [1, 2], lambda: range(1, 3), lambda: slice(1, 3),
    lambda: slice(1, 3, 1), lambda: range(0), lambda: {1: "1"}, lambda: {"1": 1}, lambda: {True: 1}, lambda: {1.0: 1},
    lambda: [np.int8(1)], lambda: [np.int64(1)], lambda: (np.float64(1),), lambda: {"a": np.int8(1)}, lambda: {"a": 1},
    lambda: collections.deque([np.int8(1)]), lambda: frozenset({np.int8(1)}), lambda: {np.int8(1): 1},
]  # fmt: skip

OTHERS: list[Callable[[], Any]] = [
    lambda: NOON, lambda: NOON.replace(fold=1), lambda: NOON.replace(tzinfo=UTC), lambda: NOON.replace(tzinfo=BERLIN),
    lambda: NOON.replace(tzinfo=UTC).astimezone(BERLIN), lambda: NOON.replace(tzinfo=zoneinfo.ZoneInfo("UTC")),
    lambda: NOON.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
    lambda: NOON.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2), "CEST")),
    lambda: datetime.datetime(2024, 7, 1), lambda: datetime.date(2024, 7, 1), lambda: "2024-07-01", lambda: datetime.time(12),
    lambda: datetime.time(12, tzinfo=UTC), lambda: datetime.timedelta(1), lambda: datetime.timedelta(seconds=1), lambda: UTC,
    lambda: datetime.timezone(datetime.timedelta(0), "GMT"), lambda: BERLIN, lambda: uuid.UUID(int=1), lambda: uuid.UUID(int=2),
    lambda: pathlib.PurePosixPath("a"), lambda: pathlib.PureWindowsPath("a"), lambda: "a", lambda: re.compile("a"),
    lambda: re.compile("a", re.IGNORECASE), lambda: re.compile(b"a"), lambda: Color.RED, lambda: Color.GREEN, lambda: Level.LOW,
    lambda: len, lambda: sum, lambda: int, lambda: functools.partial(round, ndigits=1),
    lambda: functools.partial(round, ndigits=np.int8(1)), lambda: functools.partial(round, 1),
    lambda: pd.Timestamp(NOON), lambda: pd.Timestamp(NOON, tz="UTC"), lambda: pd.Timestamp(NOON, tz="Europe/Berlin"),
    lambda: pd.Timestamp(NOON).as_unit("ns"), lambda: pd.Timestamp(NOON).as_unit("s"), lambda: pd.Timedelta(1, "s"),
    lambda: pd.Timedelta(2, "s"), lambda: pd.Period("2024-07", "M"), lambda: pd.Period("2024-07-01", "D"), lambda: pd.NaT,
    lambda: pd.NA, lambda: pd.Interval(0, 1), lambda: pd.Interval(0, 1, closed="both"),
]  # fmt: skip

ARRAYS: list[Callable[[], Any]] = [
    *(lambda kind=kind: np.ones(2, kind) for kind in
      ("bool", "i1", "u1", "i2", "<i4", ">i4", "i8", "f2", "f4", "<f8", ">f8", "c8", "S1", "U1", "M8[s]", "M8[D]", "m8[s]")),
    lambda: np.ones((2, 1)), lambda: np.ones((1, 2)), lambda: np.ones(()), lambda: np.ones(0), lambda: np.ones((0, 2)),
    lambda: objects(1, 2), lambda: objects(1.0, 2.0), lambda: objects(True, 2), lambda: objects(np.int8(1), 2),
    lambda: objects("1", "2"), lambda: np.array(["1", "2"]), lambda: np.array(["1", "2"], "U3"), lambda: objects([1], [2]),
    lambda: objects((1,), (2,)), lambda: np.array([(1, 2.0)], "i4,f4"), lambda: np.array([(1, 2.0)], "i4,f8"),
    lambda: np.array([(1, 2.0)], [("a", "i4"), ("b", "f4")]), lambda: np.array([(1, 2.0)], [("b", "i4"), ("a", "f4")]),
    lambda: np.array([(1, 2.0)], [("a", ">i4"), ("b", "f4")]), lambda: np.array([(1, [2])], [("a", "i4"), ("b", "O")]),
    lambda: np.array([(1, (2,))], [("a", "i4"), ("b", "O")]), lambda: np.array([(1, (2,))], [("a", "i8"), ("b", "O")]),
    lambda: np.array([(1, 2.0)], "i4,f4")[0], lambda: np.array([(1, (2,))], [("a", "i8"), ("b", "O")])[0],
    lambda: np.rec.array([(1, 2.0)], dtype="i4,f4"), lambda: np.ma.masked_array([1, 2], [True, False]),
    lambda: np.ma.masked_array([1, 2], [False, True]), lambda: np.ma.masked_array([1, 2], [False, True], fill_value=7),
    lambda: torch.ones(2), lambda: torch.ones(2, dtype=torch.float64), lambda: torch.ones(2, dtype=torch.bfloat16),
    lambda: torch.ones(2, dtype=torch.float16), lambda: torch.ones(2, dtype=torch.float8_e5m2),
    lambda: torch.ones(2, dtype=torch.float8_e4m3fn), lambda: torch.ones(2, dtype=torch.int32), lambda: torch.ones(1, 2),
    lambda: torch.ones(2, requires_grad=True), lambda: torch.nn.Parameter(torch.ones(2)), lambda: torch.zeros(2),
]  # fmt: skip

PICTURES: list[Callable[[], Any]] = [
    lambda: image("L"), lambda: image("P"), lambda: image("1"), lambda: image("I"), lambda: image("F"), lambda: image("RGB"),
    lambda: image("P", palette=[0, 0, 0]), lambda: image("P", palette=[255, 0, 0]), lambda: image("L", value=2),
    lambda: image("P", palette=[0, 0, 0], transparency=1), lambda: image("P", palette=[0, 0, 0], transparency=2),
    lambda: image("RGBA"), lambda: image("L").transpose(Image.Transpose.ROTATE_90), lambda: np.ones((1, 2), np.uint8),
]  # fmt: skip

TABLES: list[Callable[[], Any]] = [
    *(lambda kind=kind: pd.Series([1, 0], dtype=kind) for kind in
      ("int8", "int64", "float32", "Int8", "Int64", "Float64", "boolean", "bool", "object", "category", "datetime64[ns]",
       "timedelta64[ns]")),
    lambda: pd.Series([1.0, 0.0], dtype=object), lambda: pd.Series([True, False], dtype=object),
    lambda: pd.Series([1, 0], index=[5, 6]), lambda: pd.Series([1, 0], index=["5", "6"]), lambda: pd.Series([1, 0], name="a"),
    lambda: pd.Series([1, 0], index=pd.Index([0, 1], name="i")), lambda: pd.Series([1, 0], index=pd.Index([0, 1])),
    lambda: pd.Series([1, 0], dtype=pd.CategoricalDtype([1, 0])),
    lambda: pd.Series([1, 0], dtype=pd.CategoricalDtype([0, 1], ordered=True)),
    lambda: pd.Series(pd.to_datetime([1, 0], utc=True)), lambda: pd.Series(pd.to_datetime([1, 0], utc=True).tz_convert(BERLIN)),
    lambda: pd.Series(["a", "b"], dtype=object), lambda: pd.Series(["a", "b"], dtype="string"),
    lambda: pd.Series(["a", None], dtype=object), lambda: pd.Series(["a", pd.NA], dtype=object), lambda: [1, 0],
    lambda: np.array([1, 0]), lambda: pd.DataFrame({"a": [1]}), lambda: pd.DataFrame({"b": [1]}),
    lambda: pd.DataFrame({"a": [1.0]}),
    lambda: pd.DataFrame({"a": [1]}, index=[3]), lambda: pd.DataFrame({"a": [1], "b": [1]}), lambda: pd.DataFrame(),
    lambda: pd.DataFrame({"b": [1], "a": [1]}), lambda: pd.Index([1, 0]), lambda: pd.Index([1, 0], name="a"),
    lambda: pd.RangeIndex(2), lambda: pd.Index([0, 1]), lambda: pd.MultiIndex.from_tuples([(1, 0)]),
    lambda: pd.MultiIndex.from_tuples([(1, 0)], names=["a", "b"]), lambda: pd.DatetimeIndex(["2024-07-01", "2024-07-02"]),
    lambda: pd.date_range("2024-07-01", periods=2, freq="D"), lambda: pd.array([1, 0]), lambda: pd.Categorical([1, 0]),
]  # fmt: skip

#: Numbers of the package that jax and tensorflow bring.
SHORT_FLOATS: list[Callable[[], Any]] = []
if importlib.util.find_spec("ml_dtypes") is not None:
    ml_dtypes = importlib.import_module("ml_dtypes")

    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"):
        kind = getattr(ml_dtypes, name)
        SHORT_FLOATS += [functools.partial(kind, 1), functools.partial(np.ones, 2, kind)]

MAKERS = [*SHORT_FLOATS, *NUMBERS, *CONTAINERS, *OTHERS, *ARRAYS, *PICTURES, *TABLES]


def as_sample(value: Any) -> DatasetIteratorIF:
    return SequenceDatasetIterator([[value]])


def as_sample_in_memory(value: Any) -> DatasetIteratorIF:
    return InMemoryDatasetIterator(as_sample(value), keep_source=False)


def as_argument_of_a_partial(value: Any) -> DatasetIteratorIF:
    return SequenceDatasetIterator([[1]]).map(functools.partial(first_of, value))


def as_outer_variable(value: Any) -> DatasetIteratorIF:
    return SequenceDatasetIterator([[1]]).map(lambda sample: (sample, value))


def first_of(value: Any, sample: Any) -> Any:
    return value, sample


@pytest.mark.parametrize(
    "place", [as_sample, as_sample_in_memory, as_argument_of_a_partial, as_outer_variable]
)
def test_different_values_never_have_one_fingerprint(
    place: Callable[[Any], DatasetIteratorIF],
) -> None:
    known: dict[str, list[str]] = {}

    for make in MAKERS:
        value = make()
        known.setdefault(place(value).fingerprint(), []).append(f"{type(value)} {value!r}")

    assert [names for names in known.values() if len(names) > 1] == []


@pytest.mark.parametrize("number", range(len(MAKERS)))
def test_equal_values_have_one_fingerprint(number: int) -> None:
    make = MAKERS[number]

    assert as_sample(make()).fingerprint() == as_sample(make()).fingerprint()
    assert (
        as_argument_of_a_partial(make()).fingerprint()
        == as_argument_of_a_partial(make()).fingerprint()
    )


@pytest.mark.parametrize("number", range(len(MAKERS)))
def test_values_of_known_kinds_need_no_version(number: int) -> None:
    assert instability_reason(as_sample(MAKERS[number]())) is None


@needs_torch
def test_fingerprints_of_values_are_those_of_another_process() -> None:
    program = (
        "import sys\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}\n"
        "from test_identity import MAKERS, as_sample\n"
        "print(*[as_sample(make()).fingerprint() for make in MAKERS])"
    )
    path = str(Path(data_stack.__file__).parent.parent)

    printed = subprocess.check_output(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": path, "PYTHONHASHSEED": "1"},
        text=True,
    )

    here = [as_sample(make()).fingerprint() for make in MAKERS]
    there = printed.split()
    differing = [
        repr(make())
        for make, one, other in zip(MAKERS, here, there, strict=True)
        if one != other and type(make()).__module__ != __name__
    ]
    assert differing == []


# ---------------------------------------------------------------------- unknown kinds


@dataclass
class Example:
    text: str


class Words(list[str]):
    """A list of a client's."""


class Named(str):
    """A text of a client's."""


class Numbered(dict[str, int]):
    """A dict of a client's."""


UNKNOWN: list[Callable[[], Any]] = [
    lambda: Example("a"), lambda: Words(["a"]), lambda: Named("a"), lambda: Numbered(a=1), lambda: iter([1]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(UNKNOWN)))
@pytest.mark.parametrize(
    "place",
    [
        as_sample,
        as_sample_in_memory,
        lambda value: SequenceDatasetIterator([objects([value])]),
        lambda value: SequenceDatasetIterator([[{"deep": [value]}]]),
        as_argument_of_a_partial,
    ],
)
def test_values_of_unknown_kinds_need_a_version(
    tmp_path: Path, place: Callable[[Any], DatasetIteratorIF], number: int
) -> None:
    iterator = place(UNKNOWN[number]())

    reason = instability_reason(iterator)

    assert reason is not None
    assert "cannot be written down" in reason
    with pytest.raises(ConfigError, match="no reliable fingerprint"):
        iterator.cache(storage=tmp_path)


def test_values_of_unknown_kinds_are_told_apart_by_their_content() -> None:
    values = [Example("a"), Example("b"), Words(["a"]), Words(["b"]), ["a"], Named("a"), Named("b"), "a",
              Numbered(a=1), Numbered(a=2), {"a": 1}]  # fmt: skip

    assert len({as_sample(value).fingerprint() for value in values}) == len(values)


def test_a_series_as_a_column_is_its_numbers() -> None:
    numbers = np.array([1, 0])
    columns = [numbers, pd.Series(numbers), pd.Series(numbers, index=[5, 6], name="a")]

    assert len({SequenceDatasetIterator([column]).fingerprint() for column in columns}) == 1


def test_texts_of_any_length_are_known_by_their_values() -> None:
    if not hasattr(np.dtypes, "StringDType"):
        pytest.skip("numpy before 2.0 has no such arrays")
    kind = np.dtypes.StringDType()
    one, same, other = (np.array(texts, kind) for texts in (["a", "b"], ["a", "b"], ["a", "c"]))

    assert as_sample(one).fingerprint() == as_sample(same).fingerprint()
    assert as_sample(one).fingerprint() != as_sample(other).fingerprint()
    assert as_sample(one).fingerprint() != as_sample(np.array(["a", "b"])).fingerprint()
