"""Chooses samples to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.meta import column_names
from data_stack.exception import ConfigError
from data_stack.show.kinds import look_at, shorten
from data_stack.show.target_distribution import n_values_of, plain_value
from data_stack.values.stacked_values import exact_array, one_hot_positions

Key = int | str | None
"""The position or key of a part of a sample; None for a missing part, or for a bare sample."""

#: Maximum number of labels to read, evenly spread.
_N_LABELS_READ = 10_000


def default_keys(meta: Any, first: Any) -> tuple[Key, Key]:
    """The keys of samples and targets: those of the meta if ``first`` has them."""
    sample_key, target_key = getattr(meta, "sample_pos", 0), getattr(meta, "target_pos", 1)
    if isinstance(first, Mapping):
        if sample_key not in first:
            pictures = (key for key in first if look_at(first[key], "image").kind == "image")
            sample_key = next(pictures, next(iter(first), None))
        if target_key not in first:
            target_key = next((key for key in first if key != sample_key and n_values_of(first[key]) == 1), None)
    return sample_key, target_key


def part_of(sample: Any, key: Key) -> Any:
    """The part of a sample at ``key``, or None; a bare sample is its own part 0."""
    if isinstance(sample, Mapping):
        return sample.get(key)
    if isinstance(sample, (tuple, list)):
        return sample[key] if isinstance(key, int) and -len(sample) <= key < len(sample) else None
    return sample if key in (0, None) else None


def title_of(iterator: DatasetIteratorIF) -> str:
    """The name and the tag of the dataset, or the iterator's class."""
    meta = getattr(iterator, "dataset_meta", None)
    names = [getattr(meta, "dataset_name", None), getattr(meta, "dataset_tag", None)]
    return " · ".join(str(name) for name in names if name) or type(iterator).__name__


def label_text(target: Any, class_names: Sequence[Any] | None, most_characters: int = 28) -> str:
    """A target as a short text: the name of its class, or its value."""
    label = _label(target)
    if class_names and type(label) is int and 0 <= label < len(class_names):
        label = class_names[label]
    return "" if label is None else shorten(label, most_characters)


def hints_of(iterator: DatasetIteratorIF) -> dict[int | str, str]:
    """The kinds of columns in the meta, by position or key; see :class:`~data_stack.dataset.meta.DatasetMeta`."""
    hints = dict(getattr(getattr(iterator, "dataset_meta", None), "column_kinds", None) or ())
    names = column_names(iterator)
    return {names.index(key) if key in names else key: kind for key, kind in hints.items()}


def overlays_of(sample: Any, hints: Mapping[Any, str]) -> dict[str, Any]:
    """The boxes and the mask of a sample, as the arguments of ``as_png``."""
    found: dict[str, Any] = {}
    for key, hint in hints.items():
        look = look_at(part_of(sample, key), hint)
        if look.kind in ("boxes", "mask"):
            found[look.kind] = look.data
    return found


def choose(
    iterator: DatasetIteratorIF, target_key: Key, n_samples: int, seed: int | None, per_class: int | None = None
) -> tuple[list[int], int]:
    """Choose positions to draw, alternating between classes (or, with ``per_class``, class after class), and count the classes.

    If the targets are not classes, the count is 0, and the positions are evenly spread.
    """
    n_total = len(iterator)
    candidates = np.linspace(0, n_total - 1, min(n_total, _N_LABELS_READ)).astype(np.intp)
    if seed is not None:
        np.random.default_rng(seed).shuffle(candidates)
    try:
        labels = [] if target_key is None else [_label(target) for target in iterator.read_column(target_key, candidates)]
    except (ConfigError, LookupError, TypeError):  # the samples have no such column
        labels = []
    classes = set(labels) - {None}
    if not classes or len(classes) > len(labels) // 2 or any(isinstance(label, float) for label in classes):
        if per_class is not None:
            raise ConfigError(f"per_class={per_class} requires a column of classes, but column {target_key!r} has none")
        return candidates[np.linspace(0, len(candidates) - 1, n_samples).astype(np.intp)].tolist(), 0
    n_before: Counter[Any] = Counter()
    in_turn: list[tuple[int, Any, int]] = []
    for position, label in zip(candidates.tolist(), labels, strict=True):
        order = (0, label, "") if isinstance(label, int) else (1, 0, str(label))
        if per_class is None or n_before[label] < per_class:
            in_turn.append((n_before[label], order, position))
        n_before[label] += 1
    chosen = sorted(in_turn)[:n_samples]
    if per_class is not None:
        chosen.sort(key=lambda each: each[1:2] + each[:1])
    return [position for _, _, position in chosen], len(classes)


def _label(target: Any) -> Any:
    """A target as a plain value; a one-hot vector is the position of its one."""
    array = exact_array(target)
    if array is None or array.dtype.kind not in "biuf":
        return plain_value(target)
    if (ones := one_hot_positions(array[None])) is not None:
        return int(ones[0])
    return array.item() if array.size == 1 else plain_value(target)
