"""Whether values are among given ones, for whole columns at once."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import canonical_json, shown
from data_stack.dataset.recipes.recipe_values import content_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting.errors import PredicateError
from data_stack.formats.parquet.selecting.ranges import Range
from data_stack.formats.parquet.selecting.values import Bools, Values, comparable, shown_kind

__all__ = ["Membership"]

_MOST_SHOWN = 8
_PLAIN = ({int}, {str})


class Membership:
    """A set of values. As in Python, 1 and 1.0 are the same and "1" is another; times are the same if they name one moment.

    Args:
        values: any iterable of hashable values; None stands for null. NaN equals nothing, so it is not found.
        what: what they are for, in messages.

    Raises:
        ConfigError: a single text, no iterable, or a value that is a list or such.
    """

    def __init__(self, values: Iterable[Any], what: str) -> None:
        if isinstance(values, (str, bytes)):
            raise ConfigError(
                f"{what} takes a list or a set of values, got the one value {shown(values)}: write [{shown(values)}]"
            )
        if isinstance(values, np.ndarray) and values.ndim != 1:
            raise ConfigError(f"{what} takes values in one dimension, got an array of shape {values.shape}")
        try:
            items = values.tolist() if isinstance(values, np.ndarray) and values.dtype.kind not in "mM" else list(values)
        except TypeError as error:
            raise ConfigError(f"{what} takes a list or a set of values, got {shown(values)}") from error
        self.has_null = False
        self._of_kinds: dict[str, set[Any]] = {}
        types = set(map(type, items))
        if types in _PLAIN:
            self._of_kinds["number" if types == {int} else "text"] = set(items)
        else:
            for item in items:
                self._add(item, what)
        self._sorted: dict[str, list[Any]] = {}
        self._arrays: dict[tuple[str, int], npt.NDArray[Any]] = {}

    def _add(self, item: Any, what: str) -> None:
        known = comparable(item)
        if known is None:
            self.has_null = True
            return
        kind, value = known
        try:
            if value == value:  # not NaN
                self._of_kinds.setdefault(kind, set()).add(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{what} takes values that can be hashed, not {shown(item)}, which is {shown_kind(kind)}"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sorted": {}, "_arrays": {}}  # what can be made again stays behind

    @property
    def kinds(self) -> set[str]:
        """Of which kinds there are values."""
        return set(self._of_kinds)

    def contains(self, values: Values) -> Bools:
        """For each value whether it is among these; anything where there is a null.

        Raises:
            PredicateError: the values are lists, arrays or such.
        """
        wanted = self._of_kinds.get(values.kind or "")
        if values.kind == "array":
            raise PredicateError("a list or an array is in no set of values; in_intersection looks at what is in it")
        if not wanted:
            return np.zeros(values.array.shape, dtype=bool)
        if values.array.dtype != object:
            return np.asarray(np.isin(values.array, self._array(wanted, values.array.dtype, values)), dtype=bool)
        items = values.array.tolist()
        try:
            return np.fromiter(map(wanted.__contains__, items), dtype=bool, count=len(items))
        except TypeError as error:
            raise PredicateError(f"values of the column cannot be looked up in a set: {error}") from error

    def _array(self, wanted: set[Any], dtype: np.dtype[Any], values: Values) -> npt.NDArray[Any]:
        """Those of the values that the dtype can have."""
        key = (dtype.str, values.unit)
        if key not in self._arrays:
            if dtype.kind == "f":
                numbers: list[Any] = [number for number in wanted if _is_float(number)]
            else:
                bounds = np.iinfo(dtype)
                whole = [int(number) for number in wanted if _is_whole(number) and number % values.unit == 0]
                numbers = [number // values.unit for number in whole]
                numbers = [number for number in numbers if bounds.min <= number <= bounds.max]
            self._arrays[key] = np.array(sorted(numbers), dtype=dtype)
        return self._arrays[key]

    def may_contain(self, known: Range) -> bool:
        """Whether one of the values lies in a range."""
        if known.kind is None:
            return True
        ordered = self._ordered(known.kind)
        first = 0 if known.low is None else bisect.bisect_left(ordered, known.low)
        return first < len(ordered) and (known.high is None or ordered[first] <= known.high)

    def must_contain(self, known: Range) -> bool:
        """Whether all that is in a range, nulls aside, is among these."""
        return known.kind is not None and known.is_one_value and known.low in self._of_kinds.get(known.kind, ())

    def _ordered(self, kind: str) -> list[Any]:
        if kind not in self._sorted:
            self._sorted[kind] = sorted(self._of_kinds.get(kind, ()))
        return self._sorted[kind]

    def content(self) -> Any:
        """Plain data that is the same for the same values."""
        found: list[Any] = []
        for kind, values in sorted(self._of_kinds.items()):
            types = set(map(type, values))
            listed = sorted(values) if types in _PLAIN else sorted(canonical_json(content_of(value)) for value in values)
            found.append([kind, content_of(listed)])
        return [self.has_null, found]

    def _shown_of(self, kind: str) -> list[Any]:
        try:
            return self._ordered(kind)[:_MOST_SHOWN]
        except TypeError:  # objects of a class without an order
            return sorted(self._of_kinds[kind], key=repr)[:_MOST_SHOWN]

    def __repr__(self) -> str:
        values = [value for kind in sorted(self._of_kinds) for value in self._shown_of(kind)]
        shown_values = [shown(value) for value in values[:_MOST_SHOWN]] + ["None"] * self.has_null
        n_values = sum(map(len, self._of_kinds.values())) + self.has_null
        more = [f"… {n_values:,} in all"] if n_values > len(shown_values) else []
        return f"[{', '.join(shown_values + more)}]"


def _is_whole(number: Any) -> bool:
    return isinstance(number, int) or (math.isfinite(number) and number == math.floor(number))


def _is_float(number: Any) -> bool:
    try:
        return bool(float(number) == number)
    except OverflowError:
        return False
