"""Iterators whose labels are numbers in one list of classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from data_stack.dataset.class_lists import class_list_of, common_class_list
from data_stack.dataset.encoders.class_mapping import ClassMapping
from data_stack.dataset.iterator.layers.mapped_classes import map_classes
from data_stack.dataset.meta import MetaFactory
from data_stack.exception import ConfigError


def with_common_classes(iterators: Sequence[Any], classes: str) -> list[Any]:
    """Return iterators whose labels are numbers in one list of classes.

    Args:
        iterators: iterators with known classes; for ``"first"``, any iterators.
        classes: ``"by name"`` numbers the labels by the names of their classes; ``"first"`` drops
            the classes of all but the first from their metas.

    Raises:
        ConfigError: the classes of an iterator are unknown, its targets are one-hot vectors, or
            ``classes`` is something else.
    """
    if classes not in ("by name", "first"):
        raise ConfigError(
            f"classes must be 'same', 'by name' or, of zip, 'first', got {classes!r:.40}"
        )
    if classes == "first":
        return [iterators[0]] + [_without_classes(iterator) for iterator in iterators[1:]]
    class_lists = _list_classes(iterators)
    common = common_class_list(class_lists)
    renumbered: list[Any] = []
    for iterator, names in zip(iterators, class_lists, strict=True):
        renumbered.append(_renumber(iterator, names, common))
    return renumbered


def _list_classes(iterators: Sequence[Any]) -> list[Sequence[Any]]:
    """Return the class names of each iterator."""
    first_names = class_list_of(iterators[0])
    class_lists: list[Sequence[Any]] = []
    for number, iterator in enumerate(iterators):
        names = class_list_of(iterator)
        if names is None:
            raise ConfigError(
                f"the classes of iterator {number} are unknown: its meta has no class_names; "
                f"name them, such as from_numpy(…, target=1, class_names=[…])"
            )
        # One-hot vectors of the same classes can stay.
        if iterator.dataset_meta.target_kind == "one_hot" and names != first_names:
            raise ConfigError(
                f"the targets of iterator {number} are one-hot vectors; "
                f"combine the labels, then call one_hot()"
            )
        class_lists.append(names)
    return class_lists


def _renumber(iterator: Any, names: Sequence[Any], common: Sequence[Any]) -> Any:
    """Return an iterator whose labels are numbers in ``common``.

    Args:
        iterator: an iterator whose labels are numbers in ``names``; labels that are names stay.
        names: the names of its classes.
        common: the names of the classes of all iterators.
    """
    if tuple(names) == tuple(common):
        return iterator
    meta = MetaFactory.copy_dataset_meta(iterator.dataset_meta)
    new_number_of = {name: number for number, name in enumerate(common)}
    # OpenML and others write -1 for a missing label, pandas None.
    mapping: dict[Any, Any] = {-1: -1, None: None}
    for old_number, name in enumerate(names):
        mapping[old_number] = new_number_of[name]
    changes_numbers = any(old != new for old, new in mapping.items())
    stacked: Any = iterator
    if changes_numbers and _has_numbers(iterator, meta.target_pos):
        stacked = map_classes(iterator, ClassMapping(mapping, unmapped="error"))
        meta = MetaFactory.copy_dataset_meta(stacked.dataset_meta)
    return stacked._with_meta(replace(meta, target_kind="label", class_names=tuple(common)))


def _has_numbers(iterator: Any, target_pos: Any) -> bool:
    """Return whether labels are numbers of classes, not their names."""
    if len(iterator) == 0:
        return True
    first_labels = iterator.read_column(target_pos, [0])
    if first_labels[0] is None:
        # A missing label tells nothing; the first label that is there does.
        present = (label for label in iterator.read_column(target_pos) if label is not None)
        return isinstance(next(present, 0), (int, np.integer))
    if first_labels.dtype.kind in "iu":
        return True
    return isinstance(first_labels[0], (int, np.integer))


def _without_classes(iterator: Any) -> Any:
    """Return an iterator whose meta has no class names."""
    if class_list_of(iterator) is None:
        return iterator
    meta = MetaFactory.copy_dataset_meta(iterator.dataset_meta)
    return iterator._with_meta(replace(meta, class_names=None))
