"""The errors for values of JSON lines that do not fit one type."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from data_stack.codecs.plain_data import shorten
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.text_tables.json_cells import MISFIT_ERRORS, convert_values, kind_of
from data_stack.formats.text_tables.json_columns import KeyCells
from data_stack.formats.text_tables.json_types import CellType

_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1
_MAX_UINT64: Final = (1 << 64) - 1


def error_of_several_types(
    name: str, key: str, values: Sequence[Any], lines: Sequence[int], error: Exception
) -> Exception:
    """Return the error for values in one block that have no common type.

    Args:
        name: the name of the file.
        key: the key of the values.
        values: the values; None for null.
        lines: the number of the line of each value.
        error: the error of pyarrow, for a reason that is not found here.
    """
    present: list[tuple[Any, int]] = []
    for value, line in zip(values, lines, strict=True):
        if value is not None:
            present.append((value, line))

    # A value of another kind than the first one, such as a text after a number.
    first, first_line = present[0]
    for value, line in present:
        if kind_of(value) != kind_of(first):
            return _error_of_types(
                name,
                key,
                f"line {first_line} has {show_value(first)}, line {line} {show_value(value)}",
            )

    # An integer that float64 lacks, beside a float.
    integers = [(value, line) for value, line in present if isinstance(value, int)]
    floats = [(value, line) for value, line in present if isinstance(value, float)]
    for value, line in integers:
        if floats and not _is_float(value):
            number, line_of_number = floats[0]
            return _error_of_types(
                name,
                key,
                f"line {line} has {show_value(value)}, which float64 lacks, line {line_of_number} "
                f"has {show_value(number)}",
            )

    # An integer that int64 lacks: uint64 may hold it.
    fit_uint64 = all(0 <= integer <= _MAX_UINT64 for integer, _ in integers)
    for value, line in integers:
        if _MIN_INT64 <= value <= _MAX_INT64:
            continue
        if fit_uint64:
            return DatasetFileCorruptError(
                f"{name!r}, line {line}, key {key!r:.80}: int64 has no number "
                f"{show_value(value)}; pass dtypes={{{key!r:.80}: 'uint64'}}"
            )
        return _error_of_types(name, key, f"line {line} has a number that int64 and float64 lack")
    return _error_of_types(name, key, str(error))


def error_of_two_types(name: str, key: str, first: KeyCells, second: KeyCells) -> Exception:
    """Return the error for two blocks whose values have no common type."""
    return _error_of_types(
        name, key, f"line {first.line} has {first.example}, line {second.line} {second.example}"
    )


def _error_of_types(name: str, key: str, reason: str) -> Exception:
    return DatasetFileCorruptError(
        f"{name!r}, key {key!r:.80}: its values are not of one type: {reason:.300}; "
        f"pass dtypes={{{key!r:.80}: str}} to read them as text, "
        f"or dtypes={{{key!r:.80}: 'json'}} to keep them as they are"
    )


def error_of_half_character(
    name: str, key: str, values: Sequence[Any], lines: Sequence[int]
) -> Exception:
    """Return the error for text that is no Unicode; it names the first line."""
    for value, line in zip(values, lines, strict=True):
        if has_half_character(value):
            return DatasetFileCorruptError(
                f"{name!r}, line {line}, key {key!r:.80}: {show_value(value)} has half of a "
                "character (a surrogate without the other one), which text lacks; correct the "
                "file, or leave out the key by columns="
            )
    return DatasetFileCorruptError(f"{name!r}, key {key!r:.80}: a text is no Unicode")


def error_of_misfit(
    name: str, key: str, values: Sequence[Any], lines: Sequence[int], type_: CellType
) -> Exception:
    """Return the error for values that do not fit a given type; it names the first line."""
    for value, line in zip(values, lines, strict=True):
        try:
            convert_values([value], type_)
        except MISFIT_ERRORS as error:
            return DatasetFileCorruptError(
                f"{name!r}, line {line}, key {key!r:.80}: {show_value(value)} does not fit "
                f"{type_}: {error!s:.200}; pass another dtype, "
                f"or dtypes={{{key!r:.80}: 'json'}} to keep the values as they are"
            )
    return DatasetFileCorruptError(
        f"{name!r}, key {key!r:.80}: its values do not fit {type_}; pass another dtype"
    )


def has_half_character(value: Any) -> bool:
    """Return whether a text in a value of JSON has a surrogate without the other one.

    JSON can write half of a character as an escape. Text in UTF-8 cannot hold it.
    """
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return True
    return False


def _is_float(integer: int) -> bool:
    """Return whether float64 holds an integer exactly."""
    try:
        return int(float(integer)) == integer
    except OverflowError:
        return False


def show_value(value: Any) -> str:
    """Return a value as a message shows it."""
    return f"{shorten(value):.60}"
