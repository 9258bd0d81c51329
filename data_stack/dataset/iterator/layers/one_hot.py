"""Samples of an iterator with labels as vectors: ``iterator.one_hot``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from data_stack.dataset.encoders.categorical import OneHotEncoder
from data_stack.dataset.encoders.categories import CategoriesLearner
from data_stack.dataset.encoders.class_mapping import ClassMapping
from data_stack.dataset.iterator.access import ColumnKey
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layers.encoded import EncodedAccess, EncodedDatasetIterator
from data_stack.dataset.iterator.layers.encoder_fitting import iterate_blocks, naming_errors
from data_stack.exception import ConfigError


def one_hot(
    iterator: DatasetIteratorIF,
    classes: Sequence[Any] | ClassMapping | None = None,
    column: ColumnKey | None = None,
) -> DatasetIteratorIF:
    """Encode labels as float32 vectors, as ``iterator.one_hot`` does.

    Args:
        iterator: the samples.
        classes: the classes, in the order of the vectors. None: those of a class mapping below;
            without one those of the meta; without these the distinct labels, which are read now.
        column: the column of the labels; None for the target.

    Raises:
        ConfigError: two classes are equal, there are no samples to find them in, or the targets are
            one-hot already.
    """
    stacked = as_iterator(iterator)
    key = stacked._class_column(column)
    meta = getattr(iterator, "dataset_meta", None)
    is_target = meta is not None and key == meta.target_pos
    if is_target and getattr(meta, "target_kind", None) == "one_hot":
        raise ConfigError(f"the targets in column {key!r} are one-hot vectors already")
    if isinstance(classes, (str, int, np.integer)):
        raise ConfigError(f"classes must be a list, such as range(10), got {classes!r:.80}")
    if classes is None:
        classes = _find_mapping(stacked, key)
    if classes is None and is_target:
        classes = getattr(meta, "class_names", None)
    if classes is None:
        classes = _find_classes(stacked, key)
    return stacked._stack_layer(EncodedDatasetIterator, encoders={key: OneHotEncoder(classes)})


def _find_mapping(iterator: DatasetIteratorIF, key: ColumnKey) -> ClassMapping | None:
    """Return the class mapping that has made all labels of a column; None if there is none.

    The mapping is directly below, or below layers that only rearrange samples.
    """
    source, _ = access_to(iterator).unwrap()
    if not isinstance(source, EncodedAccess):
        return None
    encoder = source.encoders.get(key)
    if not isinstance(encoder, ClassMapping) or encoder.unmapped == "keep":
        return None
    return encoder


def _find_classes(iterator: DatasetIteratorIF, key: ColumnKey) -> list[Any]:
    """Return the distinct labels of a column."""
    if len(iterator) == 0:
        raise ConfigError("an empty iterator has no classes; pass them: iterator.one_hot(classes)")
    learner = CategoriesLearner()
    for start, (labels,) in iterate_blocks(iterator, [key]):
        with naming_errors(f"column {key!r}"):
            if labels.ndim != 1:
                raise ConfigError(f"labels must be single values, got the shape {labels.shape[1:]}")
            learner.add(labels, start)
    classes: list[Any] = learner.finish()["categories"]
    return classes
