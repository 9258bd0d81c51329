"""Finds which values of a column are members of a set, compared as Python compares them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import shorten
from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting import PredicateError, as_times
from data_stack.values.stacked_values import objects
from data_stack_petastorm.plain_times import as_numpy_time


def check_members(values: Iterable[Any], what: str) -> frozenset[Any]:
    """Return the members of a predicate's set, to be compared with values of columns.

    Scalars of numpy become numbers and texts of Python, and all times become times of numpy. None
    stands for null. NaN and NaT are left out, because they equal nothing.

    Args:
        values: the values.
        what: the name of the predicate, for messages.

    Raises:
        ConfigError: the values are not a list or set, or cannot be hashed.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ConfigError(
            f"{what} needs a list or set of values, got {shorten(values)}: pass [{shorten(values)}]"
        )
    members = [_as_member(value) for value in values]
    try:
        # NaN and NaT differ from themselves.
        return frozenset(member for member in members if member == member)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what} needs hashable values: {error}") from error


def _as_member(value: Any) -> Any:
    """Return a time as a time of numpy, and another scalar of numpy as a value of Python."""
    member = as_numpy_time(value)
    is_time = isinstance(member, np.generic) and member.dtype.kind in "mM"
    if isinstance(member, np.generic) and not is_time:
        return member.item()
    return member


def are_members(column: npt.NDArray[Any], members: frozenset[Any]) -> npt.NDArray[np.bool_]:
    """Return whether each value is among the members: bools, shape ``(n,)``.

    1 equals 1.0, and times are compared as instants.

    Args:
        column: the values, shape ``(n,)``.
        members: a set of :func:`check_members`.

    Raises:
        PredicateError: the values are lists or arrays.
    """
    values = as_times(column)
    if values.dtype.kind in "mM":
        return _are_among_times(values, members)
    try:
        # A scalar of numpy among objects equals Python's number, and has the same hash.
        answers = map(members.__contains__, values.tolist())
        return np.fromiter(answers, bool, len(values))
    except TypeError as error:
        raise PredicateError(
            f"the values are lists or arrays: use in_intersection ({error})"
        ) from error


def _are_among_times(times: npt.NDArray[Any], members: frozenset[Any]) -> npt.NDArray[np.bool_]:
    """Return whether each time is among the members; NaT is if None is a member."""
    members_by_dtype: dict[np.dtype[Any], list[Any]] = {}
    for member in members:
        if isinstance(member, np.generic) and member.dtype.kind == times.dtype.kind:
            members_by_dtype.setdefault(member.dtype, []).append(member)

    answers = np.zeros(len(times), bool)
    for dtype, same_unit_members in members_by_dtype.items():
        member_times = _convert_exactly(np.array(same_unit_members, dtype), times.dtype)
        answers |= np.isin(times, member_times)
    if None in members:
        answers |= np.isnat(times)
    return answers


def _convert_exactly(times: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Convert times to the unit of a column, without those that the unit cannot hold.

    numpy would compare times of two units in the finer one, where years far away wrap around and
    may equal another time.
    """
    converted = times.astype(dtype)
    is_exact = converted.astype(times.dtype) == times
    exact: npt.NDArray[Any] = converted[is_exact]
    return exact


def elements_of(value: Any) -> npt.NDArray[Any]:
    """Return the elements of a list or array of any shape, as an array of shape ``(n,)``.

    None, a missing list, has no elements. A text is its only element.

    Raises:
        PredicateError: the value is not a list or array.
    """
    if isinstance(value, np.ndarray) and value.ndim:
        return value.reshape(-1)
    if value is None:
        return objects(())
    if isinstance(value, (list, tuple)):
        return objects(value)
    if isinstance(value, (str, bytes)):
        return objects([value])
    raise PredicateError(f"{shorten(value)} is not a list or array: use in_set")
