"""Counts the targets of an iterator for its page, if that is quick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.access_of_iterator import DefaultAccess, access_to
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.show.display_value import to_display_value
from data_stack.show.sample_parts import part_of
from data_stack.show.target_distribution import target_distribution
from data_stack.values.stacked_values import stack_values

#: With more classes, integer targets are described by their range.
MAX_CLASSES = 16

#: A target column above this size, in bytes, is not read.
_MAX_COLUMN_BYTES = 1_000_000

#: A stack with a source in more blocks than this is not read, as each block may be a request.
_MAX_BLOCKS = 100

#: What a text takes beside its characters, in bytes.
_TEXT_OVERHEAD_BYTES = 32


class CountedTargets(NamedTuple):
    """The targets of an iterator.

    Attributes:
        counts: the number of samples of each target; empty if unknown.
        description: their range or number in words; empty if unknown.
    """

    counts: dict[Any, int]
    description: str


UNKNOWN_TARGETS = CountedTargets({}, "")


def count_targets(iterator: DatasetIteratorIF, key: Any, samples: Sequence[Any]) -> CountedTargets:
    """Count the targets of all samples, or return ``UNKNOWN_TARGETS`` if that could take long.

    Args:
        iterator: any iterator. Its targets are counted only if each layer of its stack can read one
            column without the others.
        key: the key of the target column.
        samples: at least one sample; they show the kind and the size of the targets.
    """
    values = [part_of(sample, key) for sample in samples]
    kinds = {to_display_value(value).kind for value in values}
    if not kinds <= {"number", "text", "missing"} or kinds == {"missing"}:
        return UNKNOWN_TARGETS
    n_column_bytes = len(iterator) * max(_n_bytes_of(value) for value in values)
    if n_column_bytes > _MAX_COLUMN_BYTES or not _reads_single_columns(iterator):
        return UNKNOWN_TARGETS

    column = iterator.read_column(key)
    counts = target_distribution(column)
    missing_target = "nan" if column.dtype.kind == "f" else None
    n_missing = counts.pop(missing_target, 0)
    return CountedTargets(counts, describe_targets(column, counts, n_missing))


def describe_targets(column: npt.NDArray[Any], counts: Mapping[Any, int], n_missing: int) -> str:
    """Return the range of numbers, or the number of classes, such as ``"10 classes"``.

    Args:
        column: the targets.
        counts: the number of samples of each target that is not missing.
        n_missing: number of missing targets.
    """
    text = "one class"
    if len(counts) > 1:
        text = f"{len(counts):,} classes"

    kind = column.dtype.kind
    is_fractional = kind == "f"
    is_range = is_fractional or (kind in "iu" and len(counts) > MAX_CLASSES)
    if is_range:
        finite_values = column[np.isfinite(column)]
        if len(finite_values):
            text = f"{finite_values.min():g} … {finite_values.max():g}"
    if n_missing:
        text = f"{text}, {n_missing:,} missing"
    return text


def _n_bytes_of(value: Any) -> int:
    """Return about how many bytes a target takes in a column."""
    if isinstance(value, str):
        return _TEXT_OVERHEAD_BYTES + len(value)
    return stack_values([value]).itemsize


def _reads_single_columns(iterator: Any) -> bool:
    """Return whether each layer reads one column without the others, and calls no function."""
    layers_to_check = [iterator]
    while layers_to_check:
        layer = layers_to_check.pop()
        if "function" in layer._made_with:
            return False
        access, _ = access_to(layer).unwrap()
        has_own_columns = type(access).columns is not SampleAccess.columns
        if isinstance(access, DefaultAccess) or not has_own_columns:
            return False
        blocks = access.blocks()
        if blocks is not None and len(blocks) > _MAX_BLOCKS:
            return False
        layers_to_check.extend(layer._iterators_below())
    return True
