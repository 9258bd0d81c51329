"""What ``iterator.encode``, ``map_classes`` and ``one_hot`` do: iterators whose columns go through encoders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.dataset.encoders.categorical import OneHotEncoder
from data_stack.dataset.encoders.categories import CategoriesLearner
from data_stack.dataset.encoders.class_mapping import ClassMapping
from data_stack.dataset.encoders.encoder import Encoder, Fitting
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.encoders.features import FeatureEncoder
from data_stack.dataset.encoders.transformer import EncoderLike
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF, as_iterator, column_keys
from data_stack.dataset.iterator.encoded import EncodedAccess, check_encoders
from data_stack.dataset.iterator.registry import OPERATIONS, operation
from data_stack.exception import ConfigError, DataStackError, ModelNotTrainedError

__all__ = ["encode", "fit_encoders", "map_classes", "one_hot"]


@operation
def encode(
    iterator: DatasetIteratorIF,
    encoders: Mapping[ColumnKey, EncoderLike] | EncoderLike,
    fit_on: DatasetIteratorIF | None = None,
) -> DatasetIteratorIF:
    """``iterator.encode``: columns replaced by what encoders make of them.

    Raises:
        ModelNotTrainedError: an encoder is not fitted, and there is no ``fit_on``.
        ConfigError: an object is no encoder; or ``fit_on`` has no samples, or values that an encoder cannot learn from.
    """
    if isinstance(encoders, Mapping):
        by_column = column_keys(iterator, check_encoders(encoders))
    else:
        by_column = check_encoders({getattr(_meta_of(iterator), "sample_pos", 0): encoders})
    unfitted = {key: encoder for key, encoder in by_column.items() if not encoder.is_fitted}
    if unfitted and fit_on is None:
        names = ", ".join(f"that of column {key!r} ({encoder!r})" for key, encoder in unfitted.items())
        raise ModelNotTrainedError(
            f"encoders are not fitted: {names}. Name the iterator to fit them on, as a rule the training split: "
            f"iterator.encode(…, fit_on=train). The same encoder objects can then encode the other splits"
        )
    if unfitted and fit_on is not None:
        fit_encoders(unfitted, fit_on)
    return as_iterator(iterator)._stacked("encoded", encoders=by_column)


def fit_encoders(encoders: Mapping[ColumnKey, Encoder], fit_on: DatasetIteratorIF) -> None:
    """Fit encoders on columns of an iterator, read once, block by block, and no other column where that is possible.

    Raises:
        ConfigError: there are no samples, one encoder is for two columns, or a value cannot be learned from; where it is not
            known before the end, encoders of other columns may be fitted by then.
    """
    iterator = as_iterator(fit_on)
    if len(iterator) == 0:
        raise ConfigError(f"encoders cannot be fitted on an iterator without samples (columns {', '.join(map(repr, encoders))})")
    for key, encoder in encoders.items():
        twice = [other for other in encoders if other != key and encoders[other]._fits is encoder._fits]
        if twice:
            raise ConfigError(f"one encoder is to be fitted on the columns {key!r} and {twice[0]!r}: give each its own")
    meta = _meta_of(fit_on)
    for key, encoder in encoders.items():
        if isinstance(encoder, FeatureEncoder) and encoder.feature_names is None and key == getattr(meta, "sample_pos", None):
            encoder.feature_names = getattr(meta, "feature_names", None)
    fittings = {key: Fitting(encoder) for key, encoder in encoders.items()}
    for start, columns in _blocks(iterator, list(encoders)):
        for (key, fitting), column in zip(fittings.items(), columns, strict=True):
            try:
                fitting.add(column)
            except EncodingError as error:
                raise error.within(f"fitting column {key!r}") from error
            except ConfigError as error:
                raise ConfigError(f"fitting column {key!r}, from sample {start} on: {error}") from error
    fingerprint = _fingerprint_of(iterator)
    for key, fitting in fittings.items():
        try:
            fitting.finish(fingerprint)
        except ConfigError as error:
            raise ConfigError(f"fitting column {key!r}: {error}") from error


@operation
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
        raise ConfigError(f"columns is a list of the columns to map, or None for the target; got {columns!r:.80}")
    keys = [stacked._class_column(None)] if columns is None else list(columns)
    if class_mapping.unmapped == "drop":
        stacked = stacked._stacked("mapped_classes", mapping=class_mapping, columns=keys)
    return stacked._stacked("encoded", encoders=dict.fromkeys(keys, class_mapping))


@operation
def one_hot(
    iterator: DatasetIteratorIF, classes: Sequence[Any] | ClassMapping | None = None, column: ColumnKey | None = None
) -> DatasetIteratorIF:
    """``iterator.one_hot``: labels as float32 vectors; reads them now if nobody says which classes there are.

    Raises:
        ConfigError: classes are equal, there are no samples to find them in, or the targets are one-hot already.
    """
    stacked = as_iterator(iterator)
    key = stacked._class_column(column)
    meta = _meta_of(iterator)
    is_target = meta is not None and key == meta.target_pos
    if is_target and getattr(meta, "target_kind", None) == "one_hot":
        raise ConfigError(f"the targets in column {key!r} are one-hot vectors already")
    if isinstance(classes, (str, int, np.integer)):
        raise ConfigError(f"classes are a list of them, such as range(10), got {classes!r:.80}")
    if classes is None:
        classes = _mapping_of(stacked, key) or (getattr(meta, "class_names", None) if is_target else None)
        classes = _classes_of(stacked, key) if classes is None else classes
    return stacked._stacked("encoded", encoders={key: OneHotEncoder(classes)})


def _mapping_of(iterator: DatasetIteratorIF, key: ColumnKey) -> ClassMapping | None:
    """The class mapping that all labels come from: right below, or below layers that only choose samples."""
    source, _ = access_to(iterator).unwrap()
    encoder = source.encoders.get(key) if isinstance(source, EncodedAccess) else None
    return encoder if isinstance(encoder, ClassMapping) and encoder.unmapped != "keep" else None


def _classes_of(iterator: DatasetIteratorIF, key: ColumnKey) -> list[Any]:
    if len(iterator) == 0:
        raise ConfigError("there are no samples to find the classes in: name them, iterator.one_hot(classes)")
    learner = CategoriesLearner()
    for start, (labels,) in _blocks(iterator, [key]):
        try:
            if labels.ndim != 1:
                raise ConfigError(f"column {key!r}: a label is a single value, not one of shape {labels.shape[1:]}")
            learner.add(labels, start)
        except EncodingError as error:
            raise error.within(f"column {key!r}") from error
    classes: list[Any] = learner.finish()["categories"]
    return classes


def _blocks(iterator: DatasetIteratorIF, keys: list[ColumnKey]) -> Iterator[tuple[int, list[Any]]]:
    """Columns block by block, with the position of the first value, in blocks of some megabytes."""
    source = access_to(iterator)
    # A bare value is its own column 0. Where another is asked for, no sample is read to find out.
    is_bare = keys in ([0], [-1]) and source.n_samples and isinstance(source.batch(np.zeros(1, dtype=np.intp)), np.ndarray)
    return in_blocks(
        source.n_samples, lambda positions: [source.batch(positions)] if is_bare else source.columns(keys, positions)
    )


def _meta_of(iterator: Any) -> Any:
    return getattr(iterator, "dataset_meta", None)


def _fingerprint_of(iterator: DatasetIteratorIF) -> str | None:
    try:
        return str(OPERATIONS["fingerprint"](iterator))  # not its method: a client's class may have one of that name
    except DataStackError:  # it is made of something that cannot be written
        return None
