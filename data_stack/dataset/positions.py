"""Positions of samples, checked, in compact form: a range, an index array, or a formula."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, SupportsIndex, Union

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, DatasetOutOfBoundsError

IndexArrayOfInts = npt.NDArray[np.integer[Any]]
"""Checked positions of samples: integers that are not negative, shape ``(n,)``."""

IndexArray = Union[npt.NDArray[Any], Sequence[int], Sequence[bool], range, slice]
"""Positions of samples as programs give them.

They are integers, of which negative ones count from the end, or one bool for each sample.
"""

#: Up to this number of samples, positions fit in 4 bytes.
_MAX_IN_INT32 = 2**31

#: Messages show larger numbers by their length. (Python refuses to write out numbers of more than
#: 4,300 digits.)
_MAX_SHOWN = 2**128


class ComputedPositions(ABC):
    """Positions that a formula computes, without an array.

    A subclass defines ``__len__`` and ``take``, and ``at`` if it can do that faster.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of positions."""

    def at(self, index: int) -> int:
        """Return the position at ``0 <= index < len(self)``."""
        return int(self.take(np.array([index], dtype=np.intp))[0])

    @abstractmethod
    def take(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        """Return the positions at ``indices``, shape ``(n,)``, each index in ``[0, len(self))``."""

    def __iter__(self) -> Iterator[int]:
        # By __getitem__() alone, a loop would take an IndexError of take() for the end.
        for index in range(len(self)):
            yield self.at(index)

    def __getitem__(self, index: int) -> int:
        """Like a list: negative indices count from the end."""
        n_positions = len(self)
        if 0 <= index < n_positions:
            return self.at(index)
        if -n_positions <= index < 0:
            return self.at(index + n_positions)
        raise IndexError(index)


class Formula(ComputedPositions):
    """Positions that a function computes.

    Args:
        length: the number of positions.
        function: a function of a module, so that it can be pickled; it is called with ``arguments``
            and the indices.
        arguments: the first arguments of the function.
    """

    def __init__(
        self, length: int, function: Callable[..., IndexArrayOfInts], *arguments: Any
    ) -> None:
        self._length = length
        self._function = function
        self._arguments = arguments

    def __len__(self) -> int:
        return self._length

    def take(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        """Return the positions at ``indices``."""
        return self._function(*self._arguments, indices)


Positions = Union[range, IndexArrayOfInts, ComputedPositions]
"""Positions in ``[0, n)`` of an iterator of n samples.

Arrays have shape ``(n,)`` and are not written to.
"""


class _Composed(ComputedPositions):
    """The positions ``inner[outer[0]], inner[outer[1]], …``.

    Args:
        outer: positions in ``inner``.
        inner: positions. At least one of the two is computed.
    """

    def __init__(self, outer: Positions, inner: Positions) -> None:
        self._outer = outer
        self._inner = inner

    def __len__(self) -> int:
        return len(self._outer)

    def at(self, index: int) -> int:
        """Return the position at ``index``."""
        return int(self._inner[int(self._outer[index])])

    def take(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        """Return the positions at ``indices``."""
        return take(self._inner, take(self._outer, indices))


def take(positions: Positions, indices: IndexArrayOfInts) -> IndexArrayOfInts:
    """Return the positions at ``indices``, each in ``[0, len(positions))``."""
    if isinstance(positions, np.ndarray):
        # The method take() would copy a slice of positions first.
        picked: IndexArrayOfInts = positions[indices]
        return picked
    if isinstance(positions, range):
        if _is_identity(positions):
            return indices
        return positions.start + indices.astype(np.intp, copy=False) * positions.step
    return positions.take(indices)


def compose(outer: Positions, inner: Positions | None) -> Positions:
    """Return the positions ``inner[outer[0]], inner[outer[1]], …``.

    Of two ranges it is a range, of computed positions it is computed.

    Args:
        outer: positions in ``inner``.
        inner: positions; None: all positions.
    """
    if inner is None or (isinstance(inner, range) and _is_identity(inner)):
        return outer
    if isinstance(outer, ComputedPositions):
        return _Composed(outer, inner)
    if isinstance(outer, range):
        return _compose_range(outer, inner)
    picked = take(inner, outer)
    is_wide = picked.dtype.itemsize > np.dtype(np.int32).itemsize
    if is_wide and len(picked) and int(picked.max()) < _MAX_IN_INT32:
        picked = picked.astype(np.int32)
    picked.setflags(write=False)
    return picked


def _is_identity(positions: range) -> bool:
    return positions.start == 0 and positions.step == 1


def _compose_range(outer: range, inner: Positions) -> Positions:
    """Return the positions of ``inner`` at those of a range, without a copy."""
    if len(outer) == 0:
        return range(0)
    if isinstance(inner, range):
        first = inner[outer[0]]
        step = inner.step * outer.step
        return range(first, first + step * len(outer), step)
    if isinstance(inner, ComputedPositions):
        return _Composed(outer, inner)
    # A slice shares the memory of an array.
    stop: int | None = outer[-1] + 1
    if outer.step < 0:
        # A stop of -1 would count from the end.
        stop = outer[-1] - 1 if outer[-1] > 0 else None
    return inner[outer[0] : stop : outer.step]


def narrow(positions: IndexArrayOfInts, n_samples: int) -> IndexArrayOfInts:
    """Return a read-only copy of positions of ``n_samples`` samples, as narrow as it can be.

    A position takes 4 bytes if that suffices for all samples, otherwise 8.
    """
    dtype = np.int32 if n_samples <= _MAX_IN_INT32 else np.int64
    copy: IndexArrayOfInts = positions.astype(dtype)
    copy.setflags(write=False)
    return copy


def as_index_array(positions: Positions) -> IndexArrayOfInts:
    """Return all positions as an array, which callers must not change."""
    if isinstance(positions, range):
        return np.arange(positions.start, positions.stop, positions.step, dtype=np.intp)
    if isinstance(positions, ComputedPositions):
        return positions.take(np.arange(len(positions), dtype=np.intp))
    return positions


def blocks_at(
    positions: Positions, below: npt.NDArray[np.int64] | None
) -> npt.NDArray[np.int64] | None:
    """Return how many of the positions lie in each block of samples.

    Args:
        positions: positions of samples.
        below: the number of samples in each block; None if it is unknown.

    Returns:
        The number of positions in each block; None if that is unknown, or if the positions do not
        ascend.
    """
    if below is None or isinstance(positions, ComputedPositions):
        return None
    ends = np.cumsum(below)
    if isinstance(positions, range):
        if positions.step < 0 and len(positions) > 1:
            return None
        # How many positions lie before the end of each block: the quotient, rounded up.
        n_before = -(-(ends - positions.start) // abs(positions.step))
        n_before = np.clip(n_before, 0, len(positions))
    else:
        is_descending = len(positions) and bool((positions[1:] < positions[:-1]).any())
        if is_descending:
            return None
        n_before = np.searchsorted(positions, ends)
    return np.diff(n_before, prepend=0)


# --------------------------------------------------------------- checks of positions and integers


def check_index(index: SupportsIndex, length: int) -> int:
    """Return the position ``0 <= p < length`` of an index; negative ones count from the end.

    Raises:
        DatasetOutOfBoundsError: it lies outside.
        TypeError: it is not an integer.
    """
    position = operator.index(index)
    if 0 <= position < length:
        return position
    if -length <= position < 0:
        return position + length
    raise out_of_bounds(position, length)


def check_indices(indices: IndexArray | npt.ArrayLike, length: int) -> npt.NDArray[np.intp]:
    """Return the positions that ``indices`` mean in ``length`` samples.

    Args:
        indices: integers (a list, range, numpy array or tensor), one bool for each sample, or a
            slice. An array that needs no conversion is returned as it is, not copied.
        length: the number of samples.

    Returns:
        The positions, shape ``(n,)``, each in ``[0, length)``.

    Raises:
        DatasetOutOfBoundsError: a position lies outside, or there is not one bool for each sample.
        TypeError: not a one-dimensional array of integers or bools.
    """
    if isinstance(indices, slice):
        return np.arange(*indices.indices(length), dtype=np.intp)
    if isinstance(indices, range):
        indices = np.arange(indices.start, indices.stop, indices.step)

    if _needs_no_conversion(indices, length):
        positions: npt.NDArray[np.intp] = indices  # type: ignore[assignment]  # it is an array
        return positions

    array = _as_array_of_positions(indices, length)
    if array.dtype == bool:
        if array.size != length:
            raise DatasetOutOfBoundsError(
                f"a mask of {array.size} values cannot select from an iterator of {length} samples"
            )
        return np.flatnonzero(array)

    if array.size == 0:
        return np.empty(0, dtype=np.intp)
    # Before the cast, which would wrap large unsigned integers.
    lowest = int(array.min())
    highest = int(array.max())
    if lowest < -length or highest >= length:
        offender = lowest if lowest < -length else highest
        first_place = int((array == offender).argmax())
        raise out_of_bounds(offender, length, place=first_place)
    positions = array.astype(np.intp, copy=False)
    if lowest < 0:
        return np.where(positions < 0, positions + length, positions)
    return positions


def _needs_no_conversion(indices: Any, length: int) -> bool:
    """Return whether indices are an array of valid positions, none of them negative.

    That is what is nearly always given, so it is found out as fast as possible.
    """
    if type(indices) is not np.ndarray or indices.dtype != np.intp:
        return False
    if indices.ndim != 1 or not indices.size:
        return False
    # Negative positions are large as unsigned integers, and argmax() takes half the time of max().
    unsigned = indices.view(np.uintp)
    return bool(unsigned.item(unsigned.argmax()) < length)


def _as_array_of_positions(indices: Any, length: int) -> npt.NDArray[Any]:
    """Return a one-dimensional array of integers or bools; an empty one may have any dtype.

    Raises:
        DatasetOutOfBoundsError: an integer is larger than those of numpy.
        TypeError: ``indices`` are something else.
    """
    try:
        array = np.asarray(indices)
    except ValueError as error:  # a list of lists of different lengths
        raise TypeError(
            f"indices must be a one-dimensional list or array of integers, got {indices!r:.80}"
        ) from error
    if array.ndim == 1:
        if array.size == 0 or array.dtype == bool or array.dtype.kind in "iu":
            return array
        if array.dtype == object and all(isinstance(item, (bool, np.bool_)) for item in array):
            return array.astype(bool)  # a mask of pandas
        if array.dtype == object and all(isinstance(item, (int, np.integer)) for item in array):
            raise out_of_bounds(max(array, key=abs), length)
    raise TypeError(
        "indices must be a one-dimensional list or array of integers or bools, "
        f"got {type(indices).__name__} of shape {array.shape} and dtype {array.dtype}"
    )


def check_positions(indices: IndexArray | npt.ArrayLike, length: int) -> range | IndexArrayOfInts:
    """Return the positions that ``indices`` mean in ``length`` samples, in a form to be kept.

    A slice or range stays a range. Anything else is copied, as narrow as it can be.

    Raises:
        DatasetOutOfBoundsError: a position lies outside, or there is not one bool for each sample.
        TypeError: not a one-dimensional array of integers or bools.
    """
    if isinstance(indices, slice):
        indices = range(length)[indices]
    if isinstance(indices, range):
        if len(indices) == 0:
            return range(0)
        # Negative positions count from the end. A range with positions of both signs does not mean
        # a range of positions, so it becomes an array.
        first_shift = check_index(indices[0], length) - indices[0]
        last_shift = check_index(indices[-1], length) - indices[-1]
        if first_shift == last_shift:
            return range(indices.start + first_shift, indices.stop + first_shift, indices.step)
    return narrow(check_indices(indices, length), length)


def check_integer(
    name: str, value: Any, *, at_least: int | None = None, at_most: int | None = None
) -> int:
    """Return a value as a plain int, for arguments such as counts and seeds.

    Args:
        name: what messages call the value.
        value: an integer of Python or numpy.
        at_least: the smallest valid integer; None for no limit.
        at_most: the largest valid integer; None for no limit.

    Raises:
        ConfigError: it is not an integer, or out of range. A truth value is not an integer.
    """
    problem = f"{name} must be an integer, got {value!r:.80}"
    # operator.index() would take True for 1, as in budget=True.
    if isinstance(value, bool):
        raise ConfigError(problem)
    try:
        number = operator.index(value)
    except TypeError:
        raise ConfigError(problem) from None
    if at_least is not None and number < at_least:
        raise ConfigError(f"{name} must be at least {at_least}, got {number}")
    if at_most is not None and number > at_most:
        raise ConfigError(f"{name} must be at most {at_most}, got {number}")
    return number


def out_of_bounds(position: int, length: int, place: int | None = None) -> DatasetOutOfBoundsError:
    """Return the error for a position outside of an iterator.

    Args:
        position: the position.
        length: the number of samples.
        place: where the position stands among several indices; None for a single one.
    """
    if length:
        valid = f"valid range: {-length} to {length - 1}"
    else:
        valid = "it is empty"
    if abs(position) < _MAX_SHOWN:
        shown = str(position)
    else:
        shown = f"of {position.bit_length():,} bits"
    where = "" if place is None else f", number {place} of the indices"
    return DatasetOutOfBoundsError(
        f"position {shown} is outside of an iterator of {length} samples{where}: {valid}"
    )
