"""Counts the targets of a dataset, as plain Python values."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.show.markup import readable
from data_stack.values.missing import is_null, present_values
from data_stack.values.stacked_values import one_hot_positions

#: Targets with more values, such as masks, are not counted unless they are one-hot.
MAX_VALUES_OF_A_TARGET = 64

#: The maximum number of different targets that are counted one by one. If there are more, whole
#: numbers are counted in ranges, and the rarest of other targets together.
_MAX_CLASSES = 1000

#: The maximum number of different fractional numbers that are counted one by one.
_MAX_FRACTIONAL_CLASSES = 100

#: The number of ranges of equal width.
_N_RANGES = 10

#: The target that stands for the rarer ones.
_OTHERS = "(others)"


def target_distribution(targets: npt.NDArray[Any]) -> dict[Any, int]:
    """Count the targets of a column.

    :class:`~data_stack.show.reporting.DatasetIteratorReportGenerator` documents how.

    Args:
        targets: the column, shape ``(n, ...)``.

    Returns:
        The number of samples of each target, which is a plain Python value; numbers are in order.
        Empty if a target has more than 64 values.
    """
    if len(targets) == 0:
        return {}
    targets = _flatten_single_values(targets)
    if n_values_of(targets[0]) > MAX_VALUES_OF_A_TARGET:
        return {}
    if _are_numbers(targets):
        return _count_numbers(targets)
    if targets.ndim == 1 and targets.dtype == object:
        # Numbers and missing values: the numbers are counted as without the missing ones.
        present, is_missing = present_values(targets)
        if _are_numbers(present) and len(present):
            missing_targets = Counter(plain_value(target) for target in targets[is_missing])
            return _count_numbers(present) | _sort_counts(missing_targets)
    return _count_values(targets)


def plain_value(value: Any) -> Any:
    """Convert a target to None, bool, int, float, str, or a tuple of these, which are hashable.

    Numbers of numpy and tensors become Python numbers; bytes and other objects become text; arrays
    and lists become tuples. NaN becomes ``"nan"``, as it does not equal itself.
    """
    if is_null(value):
        return None
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return None if np.isnat(value) else str(value).replace("T", " ")
    if hasattr(value, "tolist"):
        # A number of numpy, an array of its own shape in a ragged column, or a tensor.
        try:
            value = value.tolist()
        except Exception:  # noqa: BLE001  # foreign code
            return str(value)
    if isinstance(value, (list, tuple)):
        return tuple(plain_value(item) for item in value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", errors="backslashreplace")

    # YAML and JSON do not know subclasses such as enumerations, so these become the plain types.
    if type(value) is bool:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return "nan" if np.isnan(value) else float(value)
    if isinstance(value, str):
        return str.__str__(value)
    return str(value)


def class_name(target: Any, names: Sequence[Any] | None, kind: str | None) -> str | None:
    """Return the name of the class with this number; None if the target itself is the name.

    Args:
        target: a key of :func:`target_distribution`.
        names: the names of the classes, in the order of their numbers; None if unknown.
        kind: ``"label"``, ``"one_hot"``, ``"real"`` or None.
    """
    if names is None or type(target) is not int or not 0 <= target < len(names):
        return None
    # Classes named by numbers, such as digits: their targets are these numbers unless one-hot.
    if kind != "one_hot" and any(isinstance(name, int) for name in names):
        return None
    return readable(plain_value(names[target]))


def n_values_of(target: Any) -> int:
    """Return the number of values in an array, tensor, list or tuple; 1 for other objects."""
    shape = getattr(target, "shape", None)
    if isinstance(shape, tuple):
        return math.prod(shape)
    if isinstance(target, (list, tuple)):
        return len(target)
    return 1


def _flatten_single_values(targets: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return one-hot targets as the positions of their ones, single values as these values."""
    positions = one_hot_positions(targets)
    if positions is not None:
        return positions
    if targets.ndim > 1 and targets[0].size == 1:
        return targets.reshape(len(targets))
    return targets


def _are_numbers(targets: npt.NDArray[Any]) -> bool:
    return targets.ndim == 1 and targets.dtype.kind in "biuf"


def _count_values(targets: npt.NDArray[Any]) -> dict[Any, int]:
    """Count targets of any type; of many different ones the rarer ones together."""
    is_time = targets.dtype.kind in "Mm"
    if is_time and targets.ndim > 1:
        # Python has no time in nanoseconds.
        targets = targets.astype(np.str_)
        is_time = False
    values = targets if is_time else targets.tolist()
    counts = Counter(plain_value(value) for value in values)
    if len(counts) > _MAX_CLASSES:
        most_frequent = Counter(dict(counts.most_common(_MAX_CLASSES)))
        most_frequent[_OTHERS] += counts.total() - most_frequent.total()
        counts = most_frequent
    return _sort_counts(counts)


def _count_numbers(targets: npt.NDArray[Any]) -> dict[Any, int]:
    """Count numbers, shape ``(n,)``; many different ones in ranges."""
    values, counts = np.unique(targets, return_counts=True)
    max_classes = _MAX_FRACTIONAL_CLASSES if targets.dtype.kind == "f" else _MAX_CLASSES
    if len(values) > max_classes:
        return _count_in_ranges(targets.astype(np.float64))
    plain_values = [plain_value(value) for value in values.tolist()]
    return dict(zip(plain_values, counts.tolist(), strict=True))


def _count_in_ranges(targets: npt.NDArray[np.float64]) -> dict[Any, int]:
    """Count numbers in ranges of equal width, such as ``"[0.5, 1.0)"``; the last one is closed."""
    is_finite = np.isfinite(targets)
    finite_targets = targets[is_finite]
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            counts, edges = np.histogram(finite_targets, bins=_N_RANGES)
    except ValueError:  # the range is too wide or too narrow to divide
        counts = np.array([len(finite_targets)])
        edges = np.array([finite_targets.min(), finite_targets.max()])

    edge_texts = [f"{edge:.6g}" for edge in edges.tolist()]
    if len(set(edge_texts)) < len(edge_texts):
        edge_texts = [f"{edge:.17g}" for edge in edges.tolist()]
    distribution: dict[Any, int] = {}
    for (low, high), count in zip(itertools.pairwise(edge_texts), counts.tolist(), strict=True):
        bracket = "]" if high == edge_texts[-1] else ")"
        distribution[f"[{low}, {high}{bracket}"] = count

    others = Counter(str(target) for target in targets[~is_finite].tolist())
    return distribution | dict(sorted(others.items()))


def _sort_counts(counts: Counter[Any]) -> dict[Any, int]:
    """Return counts in the order of the targets."""
    return {target: counts[target] for target in sorted(counts, key=_sort_key)}


def _sort_key(target: Any) -> tuple[int, Any]:
    """Order numbers by size, then texts, then tuples by their values, then None."""
    if isinstance(target, (int, float)):
        return 0, target
    if isinstance(target, str):
        return 1, target
    if isinstance(target, tuple):
        return 2, tuple(_sort_key(item) for item in target)
    return 3, 0
