"""Finds the parts of samples to show: the picture, its label, the boxes drawn over it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.meta import column_names
from data_stack.exception import ConfigError
from data_stack.show.display_value import shorten, to_display_value
from data_stack.show.target_distribution import n_values_of, plain_value
from data_stack.values.stacked_values import exact_array, one_hot_positions

Key = int | str | None
"""The position or key of a part of a sample; None for a missing part, or for a bare sample."""

#: The maximum number of targets that are read to choose samples of all classes.
_MAX_CANDIDATES = 10_000


def default_keys(meta: Any, first_sample: Any) -> tuple[Key, Key]:
    """Return the keys of the sample and of the target.

    They are those of the meta, if ``first_sample`` has them. Otherwise a dict's first picture is
    the sample, and its first single value the target.
    """
    sample_key = getattr(meta, "sample_pos", 0)
    target_key = getattr(meta, "target_pos", 1)
    if not isinstance(first_sample, Mapping):
        return sample_key, target_key
    if sample_key not in first_sample:
        sample_key = _find_key_of_picture(first_sample)
    if target_key not in first_sample:
        target_key = _find_key_of_single_value(first_sample, sample_key)
    return sample_key, target_key


def _find_key_of_picture(sample: Mapping[Key, Any]) -> Key:
    """Return the key of the first picture; without one the first key."""
    for key, value in sample.items():
        if to_display_value(value, "image").kind == "image":
            return key
    return next(iter(sample), None)


def _find_key_of_single_value(sample: Mapping[Key, Any], sample_key: Key) -> Key:
    for key, value in sample.items():
        if key != sample_key and n_values_of(value) == 1:
            return key
    return None


def part_of(sample: Any, key: Key) -> Any:
    """Return the part of a sample at ``key``, or None. A bare sample is its own part 0."""
    if isinstance(sample, Mapping):
        return sample.get(key)
    if isinstance(sample, (tuple, list)):
        if isinstance(key, int) and -len(sample) <= key < len(sample):
            return sample[key]
        return None
    if key in (0, None):
        return sample
    return None


def title_of(iterator: DatasetIteratorIF) -> str:
    """Return the name and the tag of the dataset, or the iterator's class."""
    meta = getattr(iterator, "dataset_meta", None)
    names = [getattr(meta, "dataset_name", None), getattr(meta, "dataset_tag", None)]
    title = " · ".join(str(name) for name in names if name)
    return title or type(iterator).__name__


def label_text(target: Any, class_names: Sequence[Any] | None, most_characters: int = 28) -> str:
    """Return a target as a short text: the name of its class, or its value."""
    label = label_of(target)
    if label is None:
        return ""
    if class_names and type(label) is int and 0 <= label < len(class_names):
        return shorten(class_names[label], most_characters)
    return shorten(label, most_characters)


def label_of(target: Any) -> Any:
    """Return a target as a plain value; of a one-hot vector the position of its one."""
    array = exact_array(target)
    if array is None or array.dtype.kind not in "biuf":
        return plain_value(target)
    ones = one_hot_positions(array[np.newaxis])
    if ones is not None:
        return int(ones[0])
    if array.size == 1:
        return array.item()
    return plain_value(target)


def hints_of(iterator: DatasetIteratorIF) -> dict[int | str, str]:
    """Return the kinds of columns in the meta, by position or key.

    See :class:`~data_stack.dataset.meta.DatasetMeta`.
    """
    meta = getattr(iterator, "dataset_meta", None)
    column_kinds = dict(getattr(meta, "column_kinds", None) or ())
    names = column_names(iterator)
    hints = {}
    for key, kind in column_kinds.items():
        if key in names:
            key = names.index(key)
        hints[key] = kind
    return hints


def overlays_of(sample: Any, hints: Mapping[Any, str]) -> dict[str, Any]:
    """Return the boxes and the mask of a sample, as the arguments of ``as_png``."""
    overlays: dict[str, Any] = {}
    for key, hint in hints.items():
        shown = to_display_value(part_of(sample, key), hint)
        if shown.kind in ("boxes", "mask"):
            overlays[shown.kind] = shown.data
    return overlays


def choose(
    iterator: DatasetIteratorIF,
    target_key: Key,
    n_samples: int,
    seed: int | None,
    per_class: int | None = None,
) -> tuple[list[int], int]:
    """Choose samples to show.

    The chosen samples alternate between the classes; with ``per_class`` they go class after class.
    If the targets are not classes, the samples are spread evenly over the iterator.

    Args:
        iterator: the samples; up to 10,000 targets are read.
        target_key: the column of the classes; None if there is none.
        n_samples: how many samples to choose.
        seed: chooses random samples of each class; None: the first ones.
        per_class: how many samples of each class to choose at most; None: no limit.

    Returns:
        The positions of the samples, and the number of classes, 0 if the targets are not classes.

    Raises:
        ConfigError: ``per_class`` is given, but the targets are not classes.
    """
    n_total = len(iterator)
    n_candidates = min(n_total, _MAX_CANDIDATES)
    candidates = np.linspace(0, n_total - 1, n_candidates).astype(np.intp)
    if seed is not None:
        np.random.default_rng(seed).shuffle(candidates)

    labels = _read_labels(iterator, target_key, candidates)
    classes = set(labels) - {None}
    if _are_classes(classes, n_labels=len(labels)):
        chosen = choose_by_class(candidates.tolist(), labels, n_samples, per_class)
        return chosen, len(classes)
    if per_class is not None:
        raise ConfigError(
            f"per_class={per_class} requires a column of classes, "
            f"but column {target_key!r} has none"
        )
    evenly_spread = np.linspace(0, len(candidates) - 1, n_samples).astype(np.intp)
    return candidates[evenly_spread].tolist(), 0


def _read_labels(
    iterator: DatasetIteratorIF, target_key: Key, positions: npt.NDArray[np.intp]
) -> list[Any]:
    """Return the labels at some positions; none if the samples have no such column."""
    if target_key is None:
        return []
    try:
        return [label_of(target) for target in iterator.read_column(target_key, positions)]
    except (ConfigError, LookupError, TypeError):
        return []


def _are_classes(labels: set[Any], *, n_labels: int) -> bool:
    """Return whether labels are classes: few for ``n_labels`` samples, and no fractions."""
    if not labels or len(labels) > n_labels // 2:
        return False
    return not any(isinstance(label, float) for label in labels)


def choose_by_class(
    positions: Sequence[int], labels: Sequence[Any], n_samples: int, per_class: int | None
) -> list[int]:
    """Choose ``n_samples`` positions, equally many of each class.

    Args:
        positions: the positions to choose from.
        labels: an int, a text or None for each position.
        n_samples: how many positions to return at most.
        per_class: how many positions of a class to return at most. None: no limit, and the
            positions alternate between the classes.
    """
    n_of_class: Counter[Any] = Counter()
    candidates: list[_Candidate] = []
    for position, label in zip(positions, labels, strict=True):
        rank_in_class = n_of_class[label]
        n_of_class[label] += 1
        if per_class is None or rank_in_class < per_class:
            candidates.append(_Candidate(rank_in_class, _order_of_label(label), position))

    chosen = sorted(candidates)[:n_samples]
    if per_class is not None:
        chosen.sort(key=_order_by_class)
    return [candidate.position for candidate in chosen]


class _Candidate(NamedTuple):
    """A sample that may be chosen. Sorted candidates alternate between the classes.

    Attributes:
        rank_in_class: how many candidates of the class come before this one.
        class_order: sorts the classes.
        position: the position of the sample.
    """

    rank_in_class: int
    class_order: tuple[int, int, str]
    position: int


def _order_of_label(label: Any) -> tuple[int, int, str]:
    """Return the key that sorts labels: numbers by value, then texts, of which None is one."""
    if isinstance(label, int):
        return 0, label, ""
    return 1, 0, str(label)


def _order_by_class(candidate: _Candidate) -> Any:
    """Return the key that sorts candidates class after class."""
    return candidate.class_order, candidate.rank_in_class
