"""The types of columns of CSV files, which hold the values of their texts exactly."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_stack.formats.text_tables.exact_numbers import (
    FIRST_INEXACT,
    decimals_are_exact,
    floats_are_exact,
    has_tiny_numbers,
    narrow_floats,
)
from data_stack.formats.text_tables.far_times import NOT_A_TIME, may_be_misread, times_are_exact

#: The errors of a text that does not fit a type. They include the MemoryError of pyarrow, which is
#: therefore caught and raised before them.
MISFIT_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, LookupError, OverflowError)

#: The bit that turns the code of a capital letter into that of the small one.
_TO_SMALL_LETTER: Final = np.uint8(0x20)

#: The types of numbers that a column may have in its blocks.
_NUMBERS: Final = {pa.int64(), pa.uint64(), pa.float64()}

#: The types of points in time that a column may have in its blocks.
_TIMES: Final = {pa.date32(), pa.timestamp("s"), pa.timestamp("ns")}


# ---------------------------------------------------------------------- inferred types


def columns_to_check(data: bytes, table: pa.Table) -> list[str]:
    """Return the columns of numbers or times that pyarrow may have changed when it read a text.

    Args:
        data: the text of the rows.
        table: the rows, with inferred types.
    """
    # The text is searched only for columns that need it, and once: text is searched slowly.
    has_tiny = functools.cache(lambda: has_tiny_numbers(data))
    has_hexadecimal = functools.cache(lambda: has_hexadecimal_numbers(data))
    names = []
    for name in table.column_names:
        numbers = table[name]
        if pa.types.is_integer(numbers.type):
            may_be_inexact = has_hexadecimal()
        elif pa.types.is_floating(numbers.type):
            may_be_inexact = _has_large(numbers) or (_has_zero(numbers) and has_tiny())
        else:
            may_be_inexact = may_be_misread(numbers.type)
        if may_be_inexact:
            names.append(name)
    return names


def has_hexadecimal_numbers(data: bytes) -> bool:
    """Return whether a text may hold numbers such as ``0x10``, which pyarrow reads as integers."""
    codes = np.frombuffer(data, np.uint8)
    letters = np.flatnonzero((codes | _TO_SMALL_LETTER) == ord("x"))
    codes_before = codes[letters[letters > 0] - 1]
    return bool((codes_before == ord("0")).any())


def _are_some_hexadecimal(trimmed: Any) -> bool:
    """Return whether a text is a hexadecimal number, such as ``0x10``."""
    return bool(pc.any(pc.match_substring_regex(trimmed, "^[+-]?0[xX]")).as_py())


def _has_large(numbers: pa.ChunkedArray) -> bool:
    """Return whether a float is so large that float64 lacks its neighbours."""
    return bool(pc.any(pc.greater_equal(pc.abs(numbers), FIRST_INEXACT)).as_py())


def _has_zero(numbers: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.equal(numbers, 0.0)).as_py())


def exact_column(numbers: pa.ChunkedArray, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of texts: as numbers or times if these equal the texts, otherwise as text.

    Args:
        numbers: the column of numbers or times, as pyarrow read it.
        texts: the same column as text.
    """
    trimmed = pc.utf8_trim(texts, " \t")
    if pa.types.is_timestamp(numbers.type):
        return numbers if times_are_exact(numbers, trimmed) else texts
    if pa.types.is_integer(numbers.type):
        return texts if _are_some_hexadecimal(trimmed) else numbers
    # Integers that int64 lacks became floats. pc.all() leaves nulls out.
    are_integers = pc.match_substring_regex(trimmed, "^[+-]?[0-9]+$")
    if pc.all(are_integers).as_py():
        with contextlib.suppress(pa.ArrowInvalid):
            return trimmed.cast(pa.uint64())
    return numbers if floats_are_exact(numbers, trimmed) else texts


def common_types(types: set[pa.DataType]) -> list[pa.DataType]:
    """Return types that may hold a column whose blocks are of several types, the best one first."""
    if types <= _NUMBERS:
        if pa.float64() in types:
            return [pa.float64(), pa.string()]
        return [pa.uint64(), pa.float64(), pa.string()]
    if types <= _TIMES:
        if pa.timestamp("ns") in types:
            return [pa.timestamp("ns"), pa.string()]
        return [pa.timestamp("s"), pa.timestamp("ns"), pa.string()]
    return [pa.string()]


# ---------------------------------------------------------------------- given types


def reads_exactly(type_: pa.DataType) -> bool:
    """Return whether pyarrow's reader of CSV reads a given type without changing a value.

    A column of another type is read as text, and converted by :func:`convert_texts`.
    """
    # Old versions of pyarrow read no durations. All versions change some decimals.
    is_converted = (
        pa.types.is_boolean(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_decimal(type_)
        or pa.types.is_duration(type_)
    )
    return not is_converted and not may_be_misread(type_)


def convert_texts(texts: Any, type_: pa.DataType) -> Any:
    """Return texts as values of a type; None if a text does not fit."""
    if pa.types.is_string(type_):
        return texts
    trimmed = pc.utf8_trim(texts, " \t")
    try:
        if pa.types.is_boolean(type_):
            return _truth_values(trimmed)
        if pa.types.is_floating(type_):
            return _floats(trimmed, type_)
        if pa.types.is_decimal(type_):
            return _decimals(trimmed, type_)
        if pa.types.is_duration(type_):
            return _durations(trimmed, type_)
        values = trimmed.cast(type_)
        if may_be_misread(type_) and not times_are_exact(values, trimmed):
            return None
        if pa.types.is_integer(type_) and _are_some_hexadecimal(trimmed):
            return None
        return values
    except MemoryError:
        raise
    except MISFIT_ERRORS:
        return None


def _floats(trimmed: Any, type_: pa.DataType) -> Any:
    """Return texts as floats; None if one of the numbers is not in the type."""
    doubles = trimmed.cast(pa.float64())
    if not floats_are_exact(doubles, trimmed):
        return None
    if type_ == pa.float64():
        return doubles
    return narrow_floats(doubles, type_)


def _decimals(trimmed: Any, type_: pa.DataType) -> Any:
    """Return texts as decimals; None if a decimal differs from its text."""
    decimals = trimmed.cast(type_)
    return decimals if decimals_are_exact(decimals, trimmed) else None


def _durations(trimmed: Any, type_: pa.DataType) -> Any:
    """Return integers as durations, of which they count the units; None for NaT."""
    counts = trimmed.cast(pa.int64())
    if pc.any(pc.equal(counts, NOT_A_TIME)).as_py():
        return None
    return counts.cast(type_)


def _truth_values(texts: Any) -> Any:
    """Return ``true``, ``false``, ``1`` and ``0`` as booleans; None if there are other texts."""
    lower = pc.utf8_lower(texts)
    are_true = pc.is_in(lower, pa.array(["true", "1"]))
    are_known = pc.or_(are_true, pc.is_in(lower, pa.array(["false", "0"])))
    if not pc.all(pc.or_(are_known, pc.is_null(texts))).as_py():
        return None
    return pc.if_else(pc.is_valid(texts), are_true, None)
