"""Numbers for distinct values, and their vectorized lookup."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.columns import Column
from data_stack.dataset.encoders.encoder import Learner
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.exception import ConfigError
from data_stack.values.stacked_values import objects

Codes = npt.NDArray[np.intp]
"""Numbers of categories, -1 for other values."""

NAN = math.nan
"""The one NaN among categories: NaN is unequal to itself, but found again as the same object."""

_INT64 = range(-(2**63), 2**63)


def category(value: Any) -> Any:
    """``value`` as a hashable Python value; all NaN become one object.

    Raises:
        TypeError: the value is not a bool, number, string, bytes, None, or tuple of these.
    """
    if isinstance(value, np.generic) or (getattr(value, "ndim", None) == 0 and hasattr(value, "item")):
        value = float(value) if isinstance(value, np.longdouble) else value.item()
    if value is None or type(value) is bool:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return NAN if value != value else float(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, tuple):
        return tuple(category(item) for item in value)
    raise TypeError(f"a {type(value).__name__} is not a category: use numbers, bools, strings, bytes, None, or tuples of them")


class Categories:
    """Distinct values in order; the number of a value is its position.

    Args:
        values: the categories.
        what: names one of them in errors.
        numbered: accept the integers 0, 1, … as the categories, unless one of these is a number.

    Raises:
        ConfigError: two values are equal, or have an unsupported type.
    """

    def __init__(self, values: Iterable[Any], what: str = "category", *, numbered: bool = False) -> None:
        codes: dict[Any, int] = {}
        for position, value in enumerate(values):
            try:
                plain = category(value)
            except TypeError as error:
                raise ConfigError(f"{what} number {position}: {error}") from None
            if plain in codes:
                raise ConfigError(f"the {what} {value!r:.80} is there twice, at {codes[plain]} and at {position}")
            codes[plain] = position
        self.values = tuple(codes)
        self._what, self._is_numbered = what, numbered
        if numbered and not any(map(_is_number, codes)):
            codes.update((code, code) for code in range(len(codes)))
        self._codes = codes

    def __reduce__(self) -> tuple[Any, ...]:
        # Rebuilt, because each process has its own NaN object.
        return functools.partial(Categories, numbered=self._is_numbered), (self.values, self._what)

    def __len__(self) -> int:
        return len(self.values)

    def codes(self, column: Column) -> Codes:
        """The number of each value, -1 for other values; shape as that of ``column``.

        Raises:
            EncodingError: a value has an unsupported type, such as a list.
        """
        if column.dtype.kind not in "OUSbiuf":
            raise _dtype_error(column)
        if column.dtype.kind in "biu" and column.size and column.min() >= 0 and column.max() < len(self._small):
            return self._small[column.astype(np.intp)]
        values = column.ravel().tolist()
        try:
            codes = np.fromiter(map(self._codes.get, values, itertools.repeat(-1)), dtype=np.intp, count=len(values))
        except TypeError:  # not hashable: reported below
            codes = np.full(len(values), -1, dtype=np.intp)
        for position in np.flatnonzero(codes < 0).tolist():  # numpy's scalars, NaN, or in fact unknown
            try:
                codes[position] = self._codes.get(category(values[position]), -1)
            except TypeError as error:
                raise EncodingError(f"{values[position]!r:.80}: {error}", position // values_in_row(column)) from None
        return codes.reshape(column.shape)

    @functools.cached_property
    def _small(self) -> Codes:
        """The codes of the integers from 0 on, some more than there are categories."""
        return np.array([self._codes.get(number, -1) for number in range(2 * len(self) + 8)], dtype=np.intp)

    def shorten(self) -> str:
        """The first of them, for messages."""
        more = f" and {len(self) - 8} more" if len(self) > 8 else ""
        return f"known are {', '.join(f'{value!r:.40}' for value in self.values[:8]) or 'none'}{more}"

    def values_of(self, codes: Codes) -> Column:
        """The categories of these numbers; None for -1."""
        column = objects([*self.values, None]) if codes.size and codes.min() < 0 else values_column(self.values)
        return column[codes]


class CategoriesLearner(Learner):
    """Collects the distinct values of a column."""

    def __init__(self) -> None:
        self._seen: dict[Any, None] = {}

    def add(self, block: Column, first: int) -> None:
        """Add the values of a block."""
        if block.dtype.kind not in "OUSbiuf":
            raise _dtype_error(block)
        values = (np.unique(block) if block.dtype.kind in "biuf" else block.ravel()).tolist()
        distinct = values
        with contextlib.suppress(TypeError):  # not hashable: reported below
            distinct = dict.fromkeys(values)
        for value in distinct:
            try:
                self._seen.setdefault(category(value))
            except TypeError as error:
                place = next(place for place, item in enumerate(values) if item is value)
                raise EncodingError(f"{value!r:.80}: {error}", first + place // values_in_row(block)) from None

    def finish(self) -> dict[str, Any]:
        """``categories``: sorted, numbers first, then strings, then the rest."""
        return {"categories": sorted(self._seen, key=_order)}


def values_column(values: Sequence[Any]) -> Column:
    """Values as an array: of numbers if all are of one type that numpy has; otherwise of objects."""
    types = set(map(type, values))
    if types == {bool} or types == {float} or (types == {int} and all(value in _INT64 for value in values)):
        return np.array(values)
    return objects(values)


def _dtype_error(column: Column) -> ConfigError:
    return ConfigError(f"values of dtype {column.dtype} cannot be categories; numbers, strings and bytes can")


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def values_in_row(column: Column) -> int:
    """How many values a row of a column has, at least 1."""
    return max(1, math.prod(column.shape[1:]))


def _order(value: Any) -> tuple[int, Any]:
    if value is NAN:
        return 1, 0
    if isinstance(value, tuple):
        return 4, repr(value)
    if value is None:
        return 5, 0
    return (0 if _is_number(value) else 2 if isinstance(value, str) else 3), value
