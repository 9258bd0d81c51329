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

IndexArray = Union[npt.NDArray[Any], Sequence[int], Sequence[bool], range, slice]
"""Positions of samples: integers (negative ones count from the end), or one bool for each sample."""

_MAX_IN_INT32 = 2**31


class ComputedPositions(ABC):
    """Positions that a formula computes, without an array.

    A subclass defines ``__len__`` and ``take``, and ``at`` if it can do that faster.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Number of positions."""

    def at(self, index: int) -> int:
        """The position at ``0 <= index < len(self)``."""
        return int(self.take(np.array([index], dtype=np.intp))[0])

    @abstractmethod
    def take(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        """The positions at ``indices``, shape ``(n,)``, each index in ``[0, len(self))``."""

    def __iter__(self) -> Iterator[int]:
        # Without it, a loop would take an IndexError of take() for the end of the positions.
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
        length: number of positions.
        function: of a module, so that it can be pickled; it is called with ``arguments`` and the indices.
    """

    def __init__(
        self, length: int, function: Callable[..., IndexArrayOfInts], *arguments: Any
    ) -> None:
        self._length, self._function, self._arguments = length, function, arguments

    def __len__(self) -> int:
        return self._length

    def take(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        """The positions at ``indices``."""
        return self._function(*self._arguments, indices)


Positions = Union[range, IndexArrayOfInts, ComputedPositions]
"""Positions in ``[0, n)`` of an iterator of n samples; arrays have shape ``(n,)`` and are not written to."""


class _Composed(ComputedPositions):
    """``inner`` at the positions ``outer``, one of them computed."""

    def __init__(self, outer: Positions, inner: Positions) -> None:
        self._outer, self._inner = outer, inner

    def __len__(self) -> int:
        return len(self._outer)

    def at(self, index: int) -> int:
        return int(self._inner[int(self._outer[index])])

    def take(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        return take(self._inner, take(self._outer, indices))


def take(positions: Positions, indices: IndexArrayOfInts) -> IndexArrayOfInts:
    """The positions at ``indices``, each in ``[0, len(positions))``."""
    if isinstance(positions, np.ndarray):
        picked: IndexArrayOfInts = positions[
            indices
        ]  # take() would copy a slice of positions first
        return picked
    if isinstance(positions, range):
        if positions.start == 0 and positions.step == 1:
            return indices
        return positions.start + indices.astype(np.intp, copy=False) * positions.step
    return positions.take(indices)


def compose(outer: Positions, inner: Positions | None) -> Positions:
    """``inner`` (None: all positions) at the positions ``outer``. Ranges and formulas stay such."""
    if inner is None or (isinstance(inner, range) and inner.start == 0 and inner.step == 1):
        return outer
    if isinstance(outer, range):
        if len(outer) == 0:
            return range(0)
        if isinstance(inner, range):
            first, step = inner[outer[0]], inner.step * outer.step
            return range(first, first + step * len(outer), step)
        if not isinstance(inner, ComputedPositions):
            stop = outer[-1] + (1 if outer.step > 0 else -1)
            return inner[
                outer[0] : stop if stop >= 0 else None : outer.step
            ]  # shares the memory of inner
        return _Composed(outer, inner)
    if isinstance(outer, ComputedPositions):
        return _Composed(outer, inner)
    picked = take(inner, outer)
    if picked.dtype.itemsize > 4 and len(picked) and int(picked.max()) < _MAX_IN_INT32:
        picked = picked.astype(np.int32)
    picked.setflags(write=False)
    return picked


def narrow(positions: IndexArrayOfInts, n_samples: int) -> IndexArrayOfInts:
    """A read-only copy, of 4 bytes a position if ``n_samples`` allow it, otherwise of 8."""
    copy = positions.astype(np.int32 if n_samples <= _MAX_IN_INT32 else np.int64)
    copy.setflags(write=False)
    return copy


def as_index_array(positions: Positions) -> IndexArrayOfInts:
    """All positions as an array, which callers must not change."""
    if isinstance(positions, range):
        return np.arange(positions.start, positions.stop, positions.step, dtype=np.intp)
    if isinstance(positions, ComputedPositions):
        return positions.take(np.arange(len(positions), dtype=np.intp))
    return positions


# ---------------------------------------------------------------------- what is given as positions, counts and seeds


def check_index(index: SupportsIndex, length: int) -> int:
    """The position ``0 <= p < length`` that ``index`` means, negative ones counted from the end.

    Raises:
        DatasetOutOfBoundsError: it lies outside.
        TypeError: it is not an integer.
    """
    position = operator.index(index)
    if -length <= position < length:
        return position if position >= 0 else position + length
    raise out_of_bounds(position, length)


def check_indices(indices: IndexArray | npt.ArrayLike, length: int) -> npt.NDArray[np.intp]:
    """The positions that ``indices`` mean in ``length`` samples: shape ``(n,)``, each in ``[0, length)``.

    Args:
        indices: integers (a list, range, numpy array or tensor), one bool for each sample, or a slice. An array that
            needs no conversion is returned as it is, not copied.
        length: number of samples.

    Raises:
        DatasetOutOfBoundsError: a position lies outside, or there is not one bool for each sample.
        TypeError: not a one-dimensional array of integers or bools.
    """
    if isinstance(indices, range):
        indices = np.arange(indices.start, indices.stop, indices.step)
    if (
        type(indices) is np.ndarray
        and indices.dtype == np.intp
        and indices.ndim == 1
        and indices.size
    ):
        # one look at what is nearly always given; negative ones are large here, and argmax() takes half the time of max()
        unsigned = indices.view(np.uintp)
        if unsigned.item(unsigned.argmax()) < length:
            return indices
    elif isinstance(indices, slice):
        return np.arange(*indices.indices(length), dtype=np.intp)
    try:
        array = np.asarray(indices)
    except ValueError as error:  # a list of lists of different lengths
        raise TypeError(
            f"indices must be a one-dimensional list or array of integers, got {indices!r:.80}"
        ) from error
    if (
        array.dtype == object
        and array.ndim == 1
        and len(array)
        and all(isinstance(each, (bool, np.bool_)) for each in array)
    ):
        array = array.astype(bool)  # a mask of pandas
    if (
        array.dtype == object
        and array.ndim == 1
        and all(isinstance(each, (int, np.integer)) for each in array)
    ):
        raise out_of_bounds(max(array, key=abs), length)  # beyond what numpy's integers hold
    if array.ndim == 1 and array.dtype == bool:
        if array.size != length:
            raise DatasetOutOfBoundsError(
                f"a mask of {array.size} values cannot select from an iterator of {length} samples"
            )
        return np.flatnonzero(array)
    if array.ndim == 1 and array.size == 0:  # numpy makes floats of an empty list
        return np.empty(0, dtype=np.intp)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        given = f"{type(indices).__name__} of shape {array.shape} and dtype {array.dtype}"
        raise TypeError(
            f"indices must be a one-dimensional list or array of integers or bools, got {given}"
        )
    lowest, highest = (
        int(array.min()),
        int(array.max()),
    )  # before the cast, which would wrap large unsigned integers
    if lowest < -length or highest >= length:
        offender = lowest if lowest < -length else highest
        raise out_of_bounds(offender, length, place=int((array == offender).argmax()))
    positions = array.astype(np.intp, copy=False)
    return np.where(positions < 0, positions + length, positions) if lowest < 0 else positions


def check_positions(indices: IndexArray | npt.ArrayLike, length: int) -> range | IndexArrayOfInts:
    """As :func:`check_indices`, to be kept: a slice or range stays a range, anything else is copied, as narrow as it can be.

    Raises:
        DatasetOutOfBoundsError, TypeError: as there.
    """
    if isinstance(indices, slice):
        indices = range(length)[indices]
    if isinstance(indices, range):
        if len(indices) == 0:
            return range(0)
        shifts = [check_index(end, length) - end for end in (indices[0], indices[-1])]
        if shifts[0] == shifts[1]:
            return range(indices.start + shifts[0], indices.stop + shifts[0], indices.step)
    return narrow(check_indices(indices, length), length)


def check_integer(
    name: str, value: Any, *, at_least: int | None = None, at_most: int | None = None
) -> int:
    """``value`` as a plain int, for arguments such as counts and seeds.

    Raises:
        ConfigError: it is not an integer (of Python or numpy), or out of range.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ConfigError(f"{name} must be an integer, got {value!r:.80}") from None
    if at_least is not None and number < at_least:
        raise ConfigError(f"{name} must be at least {at_least}, got {number}")
    if at_most is not None and number > at_most:
        raise ConfigError(f"{name} must be at most {at_most}, got {number}")
    return number


def out_of_bounds(position: int, length: int, place: int | None = None) -> DatasetOutOfBoundsError:
    """What to raise for a position that lies outside of ``length`` samples; ``place``: where it stands among several."""
    allowed = f"allowed are {-length} to {length - 1}" if length else "it is empty"
    # Python refuses to write out numbers of more than 4,300 digits
    shown = str(position) if abs(position) < 2**128 else f"of {position.bit_length():,} bits"
    where = "" if place is None else f", number {place} of the indices"
    return DatasetOutOfBoundsError(
        f"position {shown} is outside of an iterator of {length} samples{where}: {allowed}"
    )


def blocks_at(
    positions: Positions, below: npt.NDArray[np.int64] | None
) -> npt.NDArray[np.int64] | None:
    """How many of ``positions`` lie in each block of those of lengths ``below``; None if they are not in ascending order."""
    if below is None or isinstance(positions, ComputedPositions):
        return None
    ends = np.cumsum(below)
    if isinstance(positions, range):
        if positions.step < 0 and len(positions) > 1:
            return None
        n_before = np.clip(-(-(ends - positions.start) // abs(positions.step)), 0, len(positions))
    elif len(positions) and bool((positions[1:] < positions[:-1]).any()):
        return None
    else:
        n_before = np.searchsorted(positions, ends)
    return np.diff(n_before, prepend=0)
