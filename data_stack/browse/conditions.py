"""Finds which rows of a table fulfil the conditions of a page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.browse.plain_values import Values, number_of
from data_stack.browse.table import BrowsedColumn, Table
from data_stack.exception import ConfigError
from data_stack.util.untrusted_text import parse_json
from data_stack.values.missing import missing_in

Mask = npt.NDArray[np.bool_]
"""Whether each row fulfils a condition, shape ``(n,)``."""

#: A condition names at most as many values as a histogram has bars.
MAX_VALUES: Final = 200

_MAX_CONDITIONS: Final = 32

#: The format that numpy parses. Other texts, such as "now" or times with a zone, match nothing.
_TIME_FORMAT: Final = re.compile(
    r"-?\d{4,5}(-\d\d(-\d\d([T ]\d\d(:\d\d(:\d\d(\.\d{1,9})?)?)?Z?)?)?)?", re.ASCII
)


@dataclass(frozen=True)
class Condition:
    """A condition on rows, with exactly one test: values, a range, or a text.

    Attributes:
        column: number of the column; None: any column that can be filtered.
        values: the value is one of these texts; None for a missing value.
        low: lower bound of a number or time, as text; inclusive.
        high: upper bound, as text; exclusive unless ``closed``.
        closed: whether ``high`` is inclusive.
        contains: the value contains this text, in upper or lower case; a number or boolean is
            equal to it.
    """

    column: int | None = None
    values: tuple[str | None, ...] | None = None
    low: str | None = None
    high: str | None = None
    closed: bool = False
    contains: str | None = None

    def is_valid(self, table: Table) -> bool:
        """Return whether the attributes, which come from JSON, are valid for a table."""
        return self._has_valid_types() and self._has_one_test() and self._has_column(table)

    def columns(self, table: Table) -> list[int]:
        """Return the numbers of the columns to read."""
        if self.column is None:
            return table.plain_columns()
        return [self.column]

    def mask(self, table: Table, values_by_column: Mapping[int, Values]) -> Mask:
        """Return which rows fulfil the condition in at least one of its columns."""
        masks = []
        for number in self.columns(table):
            masks.append(self._mask_of_column(table.columns[number], values_by_column[number]))
        if not masks:
            # No column can be filtered, so no row is found: a search takes missing bits for zeros.
            return np.zeros(0, dtype=bool)
        return np.asarray(np.logical_or.reduce(masks))

    def _has_valid_types(self) -> bool:
        # JSON may have put any type into the attributes.
        closed: Any = self.closed
        values: Any = self.values
        if not isinstance(closed, bool):
            return False
        if not all(_is_text_or_none(text) for text in (self.low, self.high, self.contains)):
            return False
        if values is None:
            return True
        if not isinstance(values, tuple) or len(values) > MAX_VALUES:
            return False
        return all(_is_text_or_none(text) for text in values)

    def _has_one_test(self) -> bool:
        has_range = self.low is not None or self.high is not None
        tests = [self.values is not None, has_range, self.contains is not None]
        return tests.count(True) == 1

    def _has_column(self, table: Table) -> bool:
        if self.column is None:
            # Only a text is searched for in all columns.
            return self.contains is not None
        # True is an int of Python, and no column.
        return type(self.column) is int and self.column in table.plain_columns()

    def _mask_of_column(self, column: BrowsedColumn, values: Values) -> Mask:
        if self.contains is not None:
            return _contain_text(column, values, self.contains.casefold())
        if self.values is not None:
            return _are_one_of(values, self.values)
        return self._are_in_range(values)

    def _are_in_range(self, values: Values) -> Mask:
        if values.dtype == object:
            # Texts have no ranges.
            return np.zeros(len(values), dtype=bool)
        # Comparisons with NaN are false.
        with np.errstate(invalid="ignore"):
            mask = ~missing_in(values)
            if self.low is not None:
                mask &= values >= _parse_value(values.dtype, self.low)
            if self.high is not None:
                high = _parse_value(values.dtype, self.high)
                mask &= values <= high if self.closed else values < high
        return np.asarray(mask)


def parse_conditions(text: str, table: Table) -> tuple[Condition, ...]:
    """Parse conditions from JSON such as ``[{"column": 1, "values": ["7"]}, {"contains": "cat"}]``.

    Raises:
        ConfigError: the text is invalid, or a column does not exist.
    """
    if not text:
        return ()
    try:
        conditions = tuple(_make_condition(fields) for fields in parse_json(text))
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"a filter must be a JSON list of conditions, got {text!r:.120}"
        ) from error
    are_valid = all(condition.is_valid(table) for condition in conditions)
    if len(conditions) > _MAX_CONDITIONS or not are_valid:
        raise ConfigError(f"invalid conditions: {text!r:.120}")
    return conditions


def _make_condition(fields: Any) -> Condition:
    """Make a condition of a JSON object.

    Raises:
        AttributeError, TypeError: it is not an object, or has unknown fields.
    """
    values = fields.get("values")
    if isinstance(values, list):
        fields = {**fields, "values": tuple(values)}
    return Condition(**fields)


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _contain_text(column: BrowsedColumn, values: Values, text: str) -> Mask:
    """Return which values contain a text in lower case; numbers, by the names of their classes."""
    if values.dtype == object:
        contain = [value is not None and text in value.casefold() for value in values]
        return np.array(contain, dtype=bool)

    if values.dtype.kind in "iu":
        matching_classes = []
        for number, name in enumerate(column.class_names):
            if text in name.casefold():
                matching_classes.append(number)
        if matching_classes:
            return np.isin(values, matching_classes)
    if values.dtype.kind == "b":
        # Pages show booleans as True and False.
        return np.asarray(values == number_of(text.capitalize()))
    if values.dtype.kind in "iuf":
        return np.asarray(values == number_of(text))
    return np.zeros(len(values), dtype=bool)


def _are_one_of(values: Values, texts: Sequence[str | None]) -> Mask:
    """Return which values are one of these texts; None stands for a missing value."""
    if values.dtype == object:
        searched = set(texts)
        return np.array([value in searched for value in values], dtype=bool)
    searched_values = [_parse_value(values.dtype, text) for text in texts if text is not None]
    mask = np.isin(values, np.array(searched_values))
    if None in texts:
        mask = mask | missing_in(values)
    return mask


def _parse_value(dtype: np.dtype[Any], text: str) -> Any:
    """Return the number or time of a text; NaN or NaT for other texts."""
    if dtype.kind == "M":
        return _parse_time(text)
    number = number_of(text)
    if dtype.kind == "f":
        # Numpy would round a float of Python to the dtype of the column.
        return np.float64(number)
    return number


def _parse_time(text: str) -> np.datetime64:
    if not _TIME_FORMAT.fullmatch(text):
        return np.datetime64("NaT", "us")
    try:
        return np.datetime64(text.removesuffix("Z"), "us")
    except ValueError:  # month 13
        return np.datetime64("NaT")
