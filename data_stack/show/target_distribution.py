"""Counts targets."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.show.markup import readable
from data_stack.values.stacked_values import is_null, one_hot_positions, present_values

MAX_VALUES_OF_A_TARGET = 64
"""Targets with more values, such as masks, are not counted unless they are one-hot."""

# More distinct numbers are reported as ranges.
_MAX_CLASSES = 1000
_MAX_CLASSES_OF_FLOATS = 100
_N_RANGES = 10


def target_distribution(targets: npt.NDArray[Any]) -> dict[Any, int]:
    """Count the targets, as plain Python values in order; see ``DatasetIteratorReportGenerator``.

    Args:
        targets: a column, shape ``(n, ...)``.
    """
    if len(targets) == 0:
        return {}
    if (ones := one_hot_positions(targets)) is not None:
        targets = ones
    elif targets.ndim > 1 and targets[0].size == 1:
        targets = targets.reshape(len(targets))
    if n_values_of(targets[0]) > MAX_VALUES_OF_A_TARGET:
        return {}
    if targets.ndim == 1 and targets.dtype.kind in "biuf":
        return _distribution_of_numbers(targets)
    if targets.ndim == 1 and targets.dtype == object:
        present, missing = present_values(targets)
        if present.ndim == 1 and present.dtype.kind in "biuf" and len(present):
            others = Counter(map(plain_value, targets[missing]))
            return _distribution_of_numbers(present) | {other: others[other] for other in sorted(others, key=_order)}
    if targets.dtype.kind in "Mm" and targets.ndim > 1:
        targets = targets.astype(np.str_)  # Python has no time in nanoseconds
    values = targets if targets.dtype.kind in "Mm" else targets.tolist()
    return _limit_classes(Counter(map(plain_value, values)))


def plain_value(value: Any) -> Any:
    """Convert a target to a hashable Python value: None, bool, int, float, str, or a tuple of these.

    Numbers of numpy and tensors become Python numbers; bytes and other objects become text; arrays and lists become tuples.
    """
    if is_null(value):
        return None
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return None if np.isnat(value) else str(value).replace("T", " ")
    if hasattr(value, "tolist"):  # a number or an array of its own shape in a ragged column, or a tensor
        try:
            value = value.tolist()
        except Exception:  # noqa: BLE001  # foreign code
            return str(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", errors="backslashreplace")
    if isinstance(value, (list, tuple)):
        return tuple(plain_value(item) for item in value)
    # YAML and JSON do not know subclasses such as enumerations.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return value if type(value) is bool else int(value)
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return "nan" if number != number else number  # nan does not equal itself
    return str(value)


def class_name(target: Any, names: Sequence[Any] | None, kind: str | None) -> str | None:
    """The name of the class with this number; None if the target itself is the name.

    Args:
        target: a key of :func:`target_distribution`.
        names: of the classes in the order of their numbers; None if unknown.
        kind: ``"label"``, ``"one_hot"``, ``"real"`` or None.
    """
    if names is None or type(target) is not int or not 0 <= target < len(names):
        return None
    if kind != "one_hot" and any(isinstance(name, int) for name in names):
        return None  # then the numbers are the names
    return readable(plain_value(names[target]))


def n_values_of(target: Any) -> int:
    """The number of values in an array, tensor, list or tuple; 1 for other objects."""
    shape = getattr(target, "shape", None)
    if isinstance(shape, tuple):
        return math.prod(shape)
    return len(target) if isinstance(target, (list, tuple)) else 1


def _distribution_of_numbers(targets: npt.NDArray[Any]) -> dict[Any, int]:
    is_fractional = targets.dtype.kind == "f"
    values, counts = np.unique(targets, return_counts=True)
    if len(values) > (_MAX_CLASSES_OF_FLOATS if is_fractional else _MAX_CLASSES):
        return _distribution_of_ranges(targets.astype(np.float64))
    return dict(zip(map(plain_value, values.tolist()), counts.tolist(), strict=True))


def _limit_classes(counts: Counter[Any]) -> dict[Any, int]:
    if len(counts) > _MAX_CLASSES:
        n_all = counts.total()
        counts = Counter(dict(counts.most_common(_MAX_CLASSES)))
        counts["(others)"] += n_all - counts.total()
    return {target: counts[target] for target in sorted(counts, key=_order)}


def _distribution_of_ranges(targets: npt.NDArray[np.float64]) -> dict[Any, int]:
    finite = targets[np.isfinite(targets)]
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            counts, edges = np.histogram(finite, bins=_N_RANGES)
    except ValueError:  # the range is too wide or too narrow to divide
        counts, edges = np.array([len(finite)]), np.array([finite.min(), finite.max()])
    texts = [f"{edge:.6g}" for edge in edges.tolist()]
    if len(set(texts)) < len(texts):
        texts = [f"{edge:.17g}" for edge in edges.tolist()]
    names = [f"[{low}, {high}{')' if high != texts[-1] else ']'}" for low, high in itertools.pairwise(texts)]
    ranges = dict(zip(names, counts.tolist(), strict=True))
    others = Counter(str(target) for target in targets[~np.isfinite(targets)].tolist())
    return ranges | dict(sorted(others.items()))


def _order(target: Any) -> tuple[int, Any]:
    """Numbers by size, then text, then tuples by their values, then None."""
    if isinstance(target, (int, float)):
        return 0, target
    if isinstance(target, str):
        return 1, target
    return (2, tuple(map(_order, target))) if isinstance(target, tuple) else (3, 0)
