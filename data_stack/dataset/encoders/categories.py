"""Categories: the distinct values that encoders number."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.columns import ColumnArray
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.encoders.learner import Learner
from data_stack.exception import ConfigError
from data_stack.values.stacked_values import objects

Codes = npt.NDArray[np.intp]
"""Codes of values: the number of the category of each value, -1 for values without a category."""

NAN = math.nan
"""The one NaN among categories. NaN is unequal to itself, but a dict finds the same object."""

#: The types of categories. bool stands before int, from which it derives.
_CATEGORY_TYPES: tuple[Any, ...] = (bool, str, int, float, bytes)

#: The kinds of dtypes whose values may be categories.
_CATEGORY_DTYPE_KINDS = "OUSbiuf"

#: Messages name at most this many categories.
_MAX_SHOWN = 8

_MIN_INT64 = -(2**63)
_MAX_INT64 = 2**63 - 1


def category(value: Any) -> Any:
    """Return a value as a category: a hashable value of Python, the object :data:`NAN` for any NaN.

    Raises:
        TypeError: the value is not a bool, number, string, bytes, None, or tuple of these.
    """
    if isinstance(value, np.longdouble):
        value = float(value)
    elif _is_library_scalar(value):
        value = value.item()

    for category_type in _CATEGORY_TYPES:
        if isinstance(value, category_type):
            is_nan = value != value
            if is_nan:
                return NAN
            # An object of a derived class becomes one of the type itself.
            return category_type(value)
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(category(item) for item in value)
    raise TypeError(
        f"a {type(value).__name__} is not a category: "
        "use numbers, bools, strings, bytes, None, or tuples of them"
    )


def _is_library_scalar(value: Any) -> bool:
    """Return whether a value is a scalar of numpy's, or an array or tensor without dimensions."""
    if isinstance(value, np.generic):
        return True
    return getattr(value, "ndim", None) == 0 and hasattr(value, "item")


def is_number(value: Any) -> bool:
    """Return whether a category is a number or a bool."""
    return isinstance(value, (bool, int, float))


class Categories:
    """Distinct values in order; the number of a value is its position.

    Args:
        values: the categories.
        noun: what messages call a category, such as ``"class"``.
        accepts_numbers: whether the integers 0, 1, … are accepted for the categories. They are not
            if a category is a number.

    Attributes:
        values: the categories in their order.

    Raises:
        ConfigError: two values are equal, or have an unsupported type.
    """

    values: tuple[Any, ...]
    _noun: str
    _accepts_numbers: bool
    #: The number of each category, and of each integer that is accepted for one.
    _code_by_value: dict[Any, int]

    def __init__(
        self, values: Iterable[Any], noun: str = "category", *, accepts_numbers: bool = False
    ) -> None:
        code_by_value = _number_values(values, noun)
        self.values = tuple(code_by_value)
        self._noun = noun
        self._accepts_numbers = accepts_numbers
        if accepts_numbers and not any(is_number(value) for value in self.values):
            for code in range(len(self.values)):
                code_by_value[code] = code
        self._code_by_value = code_by_value

    def __reduce__(self) -> tuple[Any, ...]:
        # A dict that was pickled would hold the NaN of the other process, which is found only as
        # the same object. So the object is made again from its arguments.
        rebuild = functools.partial(Categories, accepts_numbers=self._accepts_numbers)
        return rebuild, (self.values, self._noun)

    def __len__(self) -> int:
        return len(self.values)

    def codes(self, column: ColumnArray) -> Codes:
        """Return the number of each value, -1 for other values.

        Args:
            column: the values, of any shape, which is that of the result.

        Raises:
            ConfigError: values of this dtype cannot be categories.
            EncodingError: a value has an unsupported type, such as a list.
        """
        if column.dtype.kind not in _CATEGORY_DTYPE_KINDS:
            raise _dtype_error(column)
        if self._are_small_integers(column):
            return self._codes_of_small_integers[column.astype(np.intp)]
        values = column.ravel().tolist()
        codes = self._look_up(values)

        # Values that a dict does not find may be scalars of numpy's, NaN, or indeed unknown.
        for position in np.flatnonzero(codes < 0).tolist():
            try:
                codes[position] = self._code_by_value.get(category(values[position]), -1)
            except TypeError as error:
                row = position // _values_in_row(column)
                raise EncodingError(f"{values[position]!r:.80}: {error}", row) from None
        return codes.reshape(column.shape)

    def _look_up(self, values: list[Any]) -> Codes:
        """Return the codes of values, -1 also for those that are hashed only after conversion."""
        codes = map(self._code_by_value.get, values, itertools.repeat(-1))
        try:
            return np.fromiter(codes, dtype=np.intp, count=len(values))
        except TypeError:  # one of the values is not hashable
            return np.full(len(values), -1, dtype=np.intp)

    def _are_small_integers(self, column: ColumnArray) -> bool:
        if column.dtype.kind not in "biu" or not column.size:
            return False
        if column.min() < 0:
            return False
        return bool(column.max() < len(self._codes_of_small_integers))

    @functools.cached_property
    def _codes_of_small_integers(self) -> Codes:
        """The codes of the integers from 0 on.

        The table is somewhat longer than there are categories, as integers may be left out.
        """
        n_integers = 2 * len(self) + 8
        codes = [self._code_by_value.get(integer, -1) for integer in range(n_integers)]
        return np.array(codes, dtype=np.intp)

    def describe(self) -> str:
        """Return a clause for messages that lists the first categories."""
        shown = ", ".join(f"{value!r:.40}" for value in self.values[:_MAX_SHOWN])
        n_more = len(self) - _MAX_SHOWN
        suffix = f" and {n_more} more" if n_more > 0 else ""
        return f"known are {shown or 'none'}{suffix}"

    def values_of(self, codes: Codes) -> ColumnArray:
        """Return the categories with these codes; None for -1."""
        has_unknown = bool(codes.size) and codes.min() < 0
        if has_unknown:
            # The code -1 takes the last item.
            return objects([*self.values, None])[codes]
        return column_of_values(self.values)[codes]


def _number_values(values: Iterable[Any], noun: str) -> dict[Any, int]:
    """Return the position of each value.

    Raises:
        ConfigError: two values are equal, or have an unsupported type.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ConfigError(f"the {noun} list must be a list of values, got {values!r:.80}")
    positions: dict[Any, int] = {}
    for position, value in enumerate(values):
        try:
            plain_value = category(value)
        except TypeError as error:
            raise ConfigError(f"{noun} number {position}: {error}") from None
        if plain_value in positions:
            raise ConfigError(
                f"the {noun} {value!r:.80} is there twice, "
                f"at {positions[plain_value]} and at {position}"
            )
        positions[plain_value] = position
    return positions


def column_of_values(values: Sequence[Any]) -> ColumnArray:
    """Return values as an array of numbers if all are of one type that numpy has.

    Otherwise it is an array of objects.
    """
    types = {type(value) for value in values}
    if types in ({bool}, {float}):
        return np.array(values)
    if types == {int} and all(_MIN_INT64 <= value <= _MAX_INT64 for value in values):
        return np.array(values)
    return objects(values)


class CategoriesLearner(Learner):
    """Collects the distinct values of a column."""

    #: The categories as the keys of a dict, in the order in which they were seen.
    _seen: dict[Any, None]

    def __init__(self) -> None:
        self._seen = {}

    def add(self, block: ColumnArray, first: int) -> None:
        """Add the values of a block."""
        if block.dtype.kind not in _CATEGORY_DTYPE_KINDS:
            raise _dtype_error(block)
        has_numbers_only = block.dtype.kind in "biuf"
        if has_numbers_only:
            for number in np.unique(block).tolist():
                self._seen.setdefault(category(number))
            return

        values = block.ravel().tolist()
        try:
            distinct_values = list(dict.fromkeys(values))
        except TypeError:  # one of the values is not hashable, which is reported below
            distinct_values = values
        for value in distinct_values:
            try:
                self._seen.setdefault(category(value))
            except TypeError as error:
                row = _position_of(value, values) // _values_in_row(block)
                raise EncodingError(f"{value!r:.80}: {error}", first + row) from None

    def finish(self) -> dict[str, Any]:
        """Return ``categories``: sorted, numbers first, then strings, then the other values."""
        return {"categories": sorted(self._seen, key=_sort_key)}


def _position_of(value: Any, values: Sequence[Any]) -> int:
    """Return the position of the same object in a list; objects need not be comparable."""
    return next(position for position, item in enumerate(values) if item is value)


def _sort_key(value: Any) -> tuple[int, Any]:
    """Return a key by which categories of different types are sorted."""
    if value is NAN:
        return 1, 0
    if is_number(value):
        return 0, value
    if isinstance(value, str):
        return 2, value
    if isinstance(value, bytes):
        return 3, value
    if isinstance(value, tuple):
        return 4, repr(value)
    return 5, 0  # None


def _dtype_error(column: ColumnArray) -> ConfigError:
    return ConfigError(
        f"values of dtype {column.dtype} cannot be categories; numbers, strings and bytes can"
    )


def _values_in_row(column: ColumnArray) -> int:
    """Return how many values a row of a column has, at least 1."""
    return max(1, math.prod(column.shape[1:]))
