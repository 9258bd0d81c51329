"""Implements ``iterator.encode``, ``map_classes`` and ``one_hot``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.dataset.encoders.categorical import CategoriesLearner, ClassMapping, OneHotEncoder
from data_stack.dataset.encoders.encoder import Encoder, Fitting
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.encoders.transformer import EncoderLike
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.layers.encoded import EncodedAccess, EncodedDatasetIterator, MappedClassesView, check_encoders
from data_stack.dataset.iterator.named_columns import column_keys
from data_stack.dataset.recipes.recipe import fingerprint
from data_stack.exception import ConfigError, DataStackError, ModelNotTrainedError


def encode(
    iterator: DatasetIteratorIF, encoders: Mapping[ColumnKey, EncoderLike] | EncoderLike, fit_on: DatasetIteratorIF | None = None
) -> DatasetIteratorIF:
    """``iterator.encode``: columns encoded.

    Raises:
        ModelNotTrainedError: an encoder is not fitted, and there is no ``fit_on``.
        ConfigError: an object is not an encoder; or ``fit_on`` has no samples, or values that an encoder cannot learn from.
    """
    if isinstance(encoders, Mapping):
        by_column = column_keys(iterator, check_encoders(encoders))
    else:
        by_column = check_encoders({getattr(getattr(iterator, "dataset_meta", None), "sample_pos", 0): encoders})
    unfitted = {key: encoder for key, encoder in by_column.items() if not encoder.is_fitted}
    if unfitted and fit_on is None:
        names = ", ".join(f"column {key!r} ({encoder!r})" for key, encoder in unfitted.items())
        raise ModelNotTrainedError(f"encoders are not fitted: {names}; fit them on the training split: encode(…, fit_on=train)")
    if unfitted and fit_on is not None:
        fit_encoders(unfitted, fit_on)
    return as_iterator(iterator)._stack_layer(EncodedDatasetIterator, encoders=by_column)


def fit_encoders(encoders: Mapping[ColumnKey, Encoder], fit_on: DatasetIteratorIF) -> None:
    """Fit encoders on columns of an iterator in one pass, block by block.

    Raises:
        ConfigError: there are no samples, one encoder is for two columns, or a value cannot be learned from.
    """
    iterator = as_iterator(fit_on)
    if len(iterator) == 0:
        raise ConfigError(f"encoders cannot be fitted on an iterator without samples (columns {', '.join(map(repr, encoders))})")
    fitted = [getattr(encoder, "transformer", encoder) for encoder in encoders.values()]
    if len(set(map(id, fitted))) < len(fitted):
        raise ConfigError(f"two of the columns {', '.join(map(repr, encoders))} share one encoder that is not fitted")
    fittings = {key: Fitting(encoder) for key, encoder in encoders.items()}
    for _, columns in _blocks(iterator, list(encoders)):
        for (key, fitting), column in zip(fittings.items(), columns, strict=True):
            with _naming(f"fitting column {key!r}"):
                fitting.add(column)
    known: str | None = None
    with contextlib.suppress(DataStackError):  # a part of the stack cannot be written
        known = fingerprint(iterator)  # a client's class may have another method of that name
    for key, fitting in fittings.items():
        with _naming(f"fitting column {key!r}"):
            fitting.finish(known)


@contextlib.contextmanager
def _naming(where: str) -> Iterator[None]:
    """Errors of an encoder say where it was."""
    try:
        yield
    except EncodingError as error:
        raise error.within(where) from error
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def map_classes(
    iterator: DatasetIteratorIF, mapping: ClassMapping | Mapping[Any, Any], columns: Sequence[ColumnKey] | None = None
) -> DatasetIteratorIF:
    """``iterator.map_classes``: classes replaced by others; reads the labels now if the mapping drops some.

    Raises:
        ConfigError: the mapping names a label twice, or there is no column.
    """
    class_mapping = mapping if isinstance(mapping, ClassMapping) else ClassMapping(mapping)
    stacked = as_iterator(iterator)
    if isinstance(columns, (str, int, np.integer)) or (columns is not None and not len(columns)):
        raise ConfigError(f"columns must be a list, or None for the target, got {columns!r:.80}")
    keys = [stacked._class_column(None)] if columns is None else list(columns)
    if class_mapping.unmapped == "drop":
        stacked = stacked._stack_layer(MappedClassesView, mapping=class_mapping, columns=keys)
    return stacked._stack_layer(EncodedDatasetIterator, encoders=dict.fromkeys(keys, class_mapping))


def one_hot(
    iterator: DatasetIteratorIF, classes: Sequence[Any] | ClassMapping | None = None, column: ColumnKey | None = None
) -> DatasetIteratorIF:
    """``iterator.one_hot``: labels as float32 vectors; reads them now if the classes are unknown.

    Raises:
        ConfigError: two classes are equal, there are no samples to find them in, or the targets are one-hot already.
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
        classes = _mapping_of(stacked, key) or (getattr(meta, "class_names", None) if is_target else None)
        classes = _classes_of(stacked, key) if classes is None else classes
    return stacked._stack_layer(EncodedDatasetIterator, encoders={key: OneHotEncoder(classes)})


def _mapping_of(iterator: DatasetIteratorIF, key: ColumnKey) -> ClassMapping | None:
    """The class mapping of all labels, directly below or below layers that only choose samples."""
    source, _ = access_to(iterator).unwrap()
    encoder = source.encoders.get(key) if isinstance(source, EncodedAccess) else None
    return encoder if isinstance(encoder, ClassMapping) and encoder.unmapped != "keep" else None


def _classes_of(iterator: DatasetIteratorIF, key: ColumnKey) -> list[Any]:
    if len(iterator) == 0:
        raise ConfigError("an empty iterator has no classes; pass them: iterator.one_hot(classes)")
    learner = CategoriesLearner()
    for start, (labels,) in _blocks(iterator, [key]):
        with _naming(f"column {key!r}"):
            if labels.ndim != 1:
                raise ConfigError(f"labels must be single values, got the shape {labels.shape[1:]}")
            learner.add(labels, start)
    classes: list[Any] = learner.finish()["categories"]
    return classes


def _blocks(iterator: DatasetIteratorIF, keys: list[ColumnKey]) -> Iterator[tuple[int, list[Any]]]:
    """Columns in blocks of some megabytes, with the position of the first value of each."""
    source = access_to(iterator)
    return in_blocks(source.n_samples, lambda positions: source.columns(keys, positions))
