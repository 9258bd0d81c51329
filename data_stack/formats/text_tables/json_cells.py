"""Converts values of JSON to cells of Arrow, without changing one."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet.inference import infer_schema
from data_stack.formats.text_tables.exact_numbers import narrow_floats
from data_stack.formats.text_tables.far_times import NOT_A_TIME, may_be_misread, times_are_exact
from data_stack.formats.text_tables.json_types import JSON, CellType, JsonType
from data_stack.values.text_numbers import decimal_of, parse_exact_float

#: The errors of a value that does not fit a type. They include the MemoryError of pyarrow, which is
#: therefore caught and raised before them.
MISFIT_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, LookupError, OverflowError)


# ---------------------------------------------------------------------- numbers


class NumberWithText(float):
    """A float that knows the text that it was read from."""

    text: str

    @classmethod
    def parse(cls, text: str) -> NumberWithText:
        """Return the number of a text.

        Raises:
            ValueError: float64 lacks the number.
        """
        number = cls(parse_exact_float(text))
        number.text = text
        return number


# ---------------------------------------------------------------------- inferred types


def kind_of(value: Any) -> str:
    """Return ``"truth"``, ``"number"``, ``"text"`` or ``"nested"``.

    Only values of one kind may share a type.
    """
    return _kind_of_class(type(value))


def _kind_of_class(class_: type) -> str:
    if class_ is bool:
        return "truth"
    if issubclass(class_, (int, float)):
        return "number"
    if class_ is str:
        return "text"
    return "nested"


def infer_cells(values: list[Any], *, has_truth: bool) -> tuple[pa.Array, CellType]:
    """Return values as cells, and their type, which holds all of them.

    The type is JSON for lists and objects that differ.

    Args:
        values: the values; None for null.
        has_truth: whether ``true`` or ``false`` may occur among them.

    Raises:
        ValueError, OverflowError or an error of pyarrow: no type holds them.
    """
    # The kinds are those of the few classes of the values: calling kind_of() for each value would
    # take longer than pyarrow does.
    classes = set(map(type, values)) - {type(None)}
    kinds = {_kind_of_class(class_) for class_ in classes}
    if len(kinds) > 1:
        raise ValueError("several types")
    # Without a kind, all values are null.
    if kinds != {"nested"}:
        cells = pa.array(values)
        return cells, cells.type
    nested_cells = _nested_cells(values, has_truth=has_truth)
    if nested_cells is not None:
        return nested_cells, nested_cells.type
    return convert_values(values, JSON), JSON


def _nested_cells(values: list[Any], *, has_truth: bool) -> pa.Array | None:
    """Return lists and objects as lists and structs of Arrow; None if Arrow would change them.

    Args:
        values: the values; None for null.
        has_truth: whether ``true`` or ``false`` may occur among them.
    """
    try:
        if not _have_same_keys(values):
            return None
        if has_truth and _mix_truth(values):
            return None
        cells = pa.array(values)
    except MemoryError:
        raise
    except MISFIT_ERRORS:
        return None
    return cells if _is_supported(cells.type) else None


def _have_same_keys(values: Sequence[Any]) -> bool:
    """Return whether all objects, and all objects at each place within them, have the same keys.

    A struct of Arrow has all keys of all objects, with nulls where an object lacks one. With a key
    of its own for each row, such a column takes memory that grows with the square of the rows.
    """
    objects = [value for value in values if isinstance(value, dict)]
    if objects:
        keys = objects[0].keys()
        if any(value.keys() != keys for value in objects):
            return False
        for key in keys:
            if not _have_same_keys([value[key] for value in objects]):
                return False
    members: list[Any] = []
    for value in values:
        if isinstance(value, list) and _first_is_nested(value):
            members += value
    return not members or _have_same_keys(members)


def _first_is_nested(values: list[Any]) -> bool:
    """Return whether a list holds lists or objects.

    The first member decides: Arrow has no type for lists or objects beside other values.
    """
    for value in values:
        if value is not None:
            return isinstance(value, (dict, list))
    return False


def _mix_truth(values: Sequence[Any]) -> bool:
    """Return whether truth values stand beside numbers at some place.

    pyarrow would make numbers of them.

    Raises:
        KeyError: objects at one place have different keys.
    """
    classes = {type(value) for value in values}
    if bool in classes and not classes <= {bool, type(None)}:
        return True
    if dict in classes:
        objects = [value for value in values if isinstance(value, dict)]
        for key in objects[0]:
            if _mix_truth([value[key] for value in objects]):
                return True
    if list in classes:
        members: list[Any] = []
        for value in values:
            if isinstance(value, list):
                members += value
        return _mix_truth(members)
    return False


@functools.lru_cache(maxsize=1000)
def _is_supported(type_: pa.DataType) -> bool:
    """Return whether values of a type can be read again; kept, as it takes 300 µs for a struct."""
    try:
        infer_schema(pa.schema([pa.field("value", type_)]))
    except ConfigError:
        return False
    return True


# ---------------------------------------------------------------------- given types


def convert_values(values: list[Any], type_: CellType) -> pa.Array:
    """Return values of JSON as cells of a given type.

    Raises:
        ValueError, TypeError, OverflowError or an error of pyarrow: a value does not fit.
    """
    if isinstance(type_, JsonType):
        texts = [None if value is None else _dump(value) for value in values]
        return pa.array(texts, pa.string())
    if pa.types.is_string(type_):
        return pa.array([_text_of(value) for value in values], type_)
    if pa.types.is_integer(type_):
        return pa.array([_integer_of(value) for value in values], type_)
    if pa.types.is_duration(type_):
        return _durations_of(values, type_)
    if pa.types.is_temporal(type_):
        return _times_of(values, type_)
    if pa.types.is_floating(type_):
        return _floats_of(values, type_)
    if pa.types.is_decimal(type_):
        return _decimals_of(values, type_)
    return pa.array(values, type_)


def _dump(value: Any) -> str:
    """Return a value as JSON text without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text_of(value: Any) -> str | None:
    """Return text as it is, a number with the digits of the file, and others as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, NumberWithText):
        return value.text
    return _dump(value)


def _times_of(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Return texts as dates or times.

    Raises:
        ValueError: a value is not a text, or the unit cannot hold its time.
        pyarrow.ArrowInvalid: a text is not a time.
    """
    for value in values:
        if value is not None and not isinstance(value, str):
            raise ValueError("a number has no unit of time; read int64, and convert it")
    texts = pa.array(values, pa.string())
    times = texts.cast(type_)
    if may_be_misread(type_) and not times_are_exact(times, texts):
        raise ValueError("a time is outside of the years 1677 to 2262 of nanoseconds")
    return times


def _durations_of(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Return integers as durations, of which they count the units.

    Raises:
        ValueError or an error of pyarrow: a value is no integer, or is NaT in numpy.
    """
    counts = [_integer_of(value) for value in values]
    if NOT_A_TIME in counts:
        raise ValueError("it is no duration of numpy, but NaT")
    return pa.array(counts, type_)


def _integer_of(value: Any) -> int | None:
    """Return a number as an integer, for pyarrow: ``5.0`` is 5.

    Raises:
        ValueError: the value is a fraction; or a truth value, of which pyarrow would make a number.
    """
    if isinstance(value, bool):
        raise ValueError("it is no integer")
    if not isinstance(value, float):
        # pyarrow refuses text, lists and objects, and knows the limits of the type.
        return value  # type: ignore[no-any-return]  # an int or None, or refused
    integer = int(value)
    if value != integer:
        raise ValueError("it is no integer")
    return integer


def _floats_of(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Return numbers as floats of 16, 32 or 64 bits.

    Raises:
        ValueError: a value is a truth value, or the type lacks a number.
    """
    if any(isinstance(value, bool) for value in values):
        raise ValueError("a truth value is no number")
    doubles = pa.array(values, pa.float64())
    if pa.types.is_float64(type_):
        return doubles
    floats = narrow_floats(doubles, type_)
    if floats is None:
        raise ValueError(f"{type_} lacks a number")
    return floats


def _decimals_of(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Return numbers as decimals.

    Raises:
        TypeError, ValueError or an error of pyarrow: a value is not a number, or does not fit.
    """
    decimals = [_decimal_of(value) for value in values]
    cells = pa.array(decimals, type_)
    # pyarrow takes some small numbers as 0, such as 5e-324.
    if cells.to_pylist() != decimals:
        raise ValueError(f"a number has more decimals than {type_}")
    return cells


def _decimal_of(value: Any) -> Decimal | None:
    """Return a number as a Decimal, with the digits of the file.

    Raises:
        TypeError, ValueError: the value is not a number.
    """
    if value is None:
        return None
    if isinstance(value, (bool, dict, list)):
        raise TypeError("it is no number")
    if isinstance(value, NumberWithText):
        return Decimal(value.text)
    if not isinstance(value, str):
        return Decimal(value)
    # Decimal() would take the text 1_0 for 10.
    number = decimal_of(value)
    if number is None:
        raise ValueError("it is no number")
    return number
