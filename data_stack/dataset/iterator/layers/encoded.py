"""Samples of an iterator with encoded columns."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from data_stack.dataset.encoders.class_mapping import ClassMapping
from data_stack.dataset.encoders.encoder import Encoder
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.encoders.transformer import EncoderLike, as_encoder
from data_stack.dataset.iterator.access import OneToOneAccess, SampleAccess, access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import Batch, Column, ColumnKey, DatasetIteratorIF, Sample
from data_stack.dataset.iterator.layer import LayerDatasetIterator
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.iterator.named_columns import column_keys
from data_stack.dataset.iterator.registry import layer
from data_stack.dataset.meta import DatasetMetaIF, MetaFactory
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError, ModelNotTrainedError
from data_stack.values.stacking import column_of, stack_values, value_of


@layer("encoded")
class EncodedDatasetIterator(LayerDatasetIterator):
    """The samples of ``dataset_iterator`` with some columns encoded.

    A column is encoded whenever it is read, a batch in one call; other columns pass through untouched, and reading one column
    reads only that one. Samples keep their form: tuples, lists and named tuples, or dicts. Shapes and dtypes are those that
    each encoder states; a single sample is a row of a batch.

    Args:
        dataset_iterator: the samples; it stays the caller's to close.
        encoders: by column (a position in tuple samples, negative ones from the end, or a key of dict samples); fitted ones.

    Raises:
        ModelNotTrainedError: an encoder is not fitted.
        ConfigError: ``encoders`` is empty, or an object is not an encoder.
        EncodingError: (when read) a value is unknown to its encoder; it names the column, the value and its position.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, encoders: Mapping[ColumnKey, EncoderLike]) -> None:
        self._encoders = column_keys(dataset_iterator, check_encoders(encoders))
        super().__init__(dataset_iterator, encoders=self._encoders)
        for key, encoder in self._encoders.items():
            if not encoder.is_fitted:
                raise ModelNotTrainedError(
                    f"the encoder of column {key!r}, {encoder!r}, is not fitted: "
                    f"name the split to fit it on, iterator.encode(…, fit_on=train), or call its fit(column)"
                )

    def make_access(self) -> SampleAccess:
        return EncodedAccess(self._below(), self._encoders)

    def _derive_meta(self, meta: DatasetMetaIF) -> DatasetMetaIF:
        followed = MetaFactory.copy_dataset_meta(meta)
        encoders, sample_pos, target_pos = follow_columns(self._dataset_iterator, meta, self._encoders)
        if sample_pos in encoders:
            names = encoders[sample_pos].names_after(followed.feature_names)
            followed = replace(followed, feature_names=names)
        if target_pos in encoders:
            encoder = encoders[target_pos]
            followed = replace(followed, target_kind=encoder.target_kind, class_names=encoder.class_names)
        return followed

    @property
    def encoders(self) -> dict[ColumnKey, Encoder]:
        """The encoders by column."""
        return dict(self._encoders)


@layer("mapped_classes", columns=["columns"])
class MappedClassesView(DatasetIteratorView):
    """The samples of ``dataset_iterator`` whose labels a class mapping names, in their order; reads the labels when it is made.

    What ``iterator.map_classes`` puts below the mapping where it drops labels. Pickled, it keeps the positions it has found.

    Args:
        dataset_iterator: the samples; it stays the caller's to close.
        mapping: which labels stay.
        columns: where the labels are; a sample stays if all of them do.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, mapping: ClassMapping, columns: Sequence[ColumnKey]) -> None:
        below = access_to(as_iterator(dataset_iterator))
        stays = np.ones(below.n_samples, dtype=bool)
        for key, labels in zip(columns, below.columns(list(columns)), strict=True):
            if labels.ndim != 1:
                raise ConfigError(f"{_column_name(key)}: a label is a single value, not one of shape {labels.shape[1:]}")
            try:
                stays &= mapping.is_mapped(labels)
            except EncodingError as error:
                raise error.within(_column_name(key), error.position) from error
        super().__init__(dataset_iterator, np.flatnonzero(stays))
        self._made_with = {"mapping": mapping, "columns": list(columns)}


class EncodedAccess(OneToOneAccess):
    """Access to samples with some columns encoded.

    Args:
        below: the samples.
        encoders: by column, fitted.
    """

    def __init__(self, below: SampleAccess, encoders: Mapping[ColumnKey, Any]) -> None:
        super().__init__(below)
        self.encoders = encoders
        self._structure: _Structure | None = None

    def sample(self, position: int) -> Sample:
        return self.samples(np.array([position], dtype=np.intp))[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        samples = self.below.samples(positions)
        if not samples:
            return []
        structure = self._structure_of(samples[0])
        columns = {
            key: self._transform(key, encoder, stack_values([value_of(sample, key) for sample in samples]), positions)
            for key, encoder in structure.encoders.items()
        }
        return [
            structure.make_like(sample, {key: column[row] for key, column in columns.items()})
            for row, sample in enumerate(samples)
        ]

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        batch = self.below.batch(positions)
        if self.n_samples == 0 and not len(batch):
            return batch
        encoders = self._structure_of(batch).encoders
        encoded = {key: self._encode(key, encoder, column_of(batch, key), positions) for key, encoder in encoders.items()}  # type: ignore[arg-type]  # not bare
        if isinstance(batch, dict):
            return {key: encoded.get(key, column) for key, column in batch.items()}
        return tuple(encoded.get(number, column) for number, column in enumerate(batch))

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[Column]:
        structure = self._find_structure(keys) if self.n_samples else None
        columns = self.below.columns(keys, positions)
        if structure is None:
            encoders = [self.encoders.get(key) for key in keys]
        else:
            encoders = [structure.encoders.get(structure.normal(key)) for key in keys]
        return [
            column if encoder is None else self._encode(key, encoder, column, positions)
            for key, encoder, column in zip(keys, encoders, columns, strict=True)
        ]

    def _encode(self, key: ColumnKey, encoder: Encoder, column: Column, positions: IndexArrayOfInts | None) -> Column:
        """An encoded column, stacked as ``read_batch`` stacks samples."""
        encoded = self._transform(key, encoder, column, positions)
        if encoded.dtype.kind != "O" or (len(encoded) == 0 and self.n_samples == 0):
            return encoded
        if len(encoded) == 0:  # only an encoded sample has its shape
            first = np.zeros(1, dtype=np.intp)
            return self._encode(key, encoder, self.below.columns([key], first)[0], first)[:0]
        types = set(map(type, encoded.tolist()))
        return encoded if types <= {str, bytes, type(None)} else stack_values(list(encoded))

    def _transform(self, key: ColumnKey, encoder: Encoder, column: Column, positions: IndexArrayOfInts | None) -> Column:
        try:
            encoded = encoder.transform(column)
        except EncodingError as error:
            at = error.position if positions is None else int(positions[error.position])
            raise error.within(_column_name(key), at) from error
        except ConfigError as error:
            raise ConfigError(f"{_column_name(key)}: {error}") from error
        if len(encoded) != len(column):
            raise ConfigError(f"{_column_name(key)}: {encoder!r} made {len(encoded)} values of {len(column)}")
        return encoded

    def _find_structure(self, keys: Sequence[ColumnKey]) -> _Structure | None:
        """The structure of samples; None where it is not needed, so that no sample is read to find out."""
        if self._structure is None and any(not isinstance(key, str) and key < 0 for key in (*self.encoders, *keys)):
            return self._structure_of(self.below.sample(0))
        return self._structure

    def _structure_of(self, sample: Any) -> _Structure:
        """The structure of samples, found with the first sample or batch."""
        if self._structure is None:
            self._structure = _Structure(sample, self.encoders)
        return self._structure


def follow_columns(
    iterator: DatasetIteratorIF, meta: DatasetMetaIF, by_column: Mapping[ColumnKey, Any]
) -> tuple[Mapping[ColumnKey, Any], ColumnKey, ColumnKey]:
    """``by_column``, and where a meta has sample and target, as columns are written in a sample: positions from 0 on, or keys."""
    sample_pos, target_pos = meta.sample_pos, meta.target_pos
    if any(isinstance(key, int) and key < 0 for key in (*by_column, sample_pos, target_pos)) and len(iterator):
        # only with a sample is it known where the end is
        structure = _Structure(as_iterator(iterator)[0], by_column)
        return structure.encoders, structure.normal(sample_pos), structure.normal(target_pos)
    return by_column, sample_pos, target_pos


class _Structure:
    """The structure of samples, and so which column each encoder is for.

    Attributes:
        encoders: by columns as they are written in a sample: positions from 0 on, or keys.
    """

    def __init__(self, sample: Any, encoders: Mapping[ColumnKey, Any]) -> None:
        self._n_columns = len(sample) if isinstance(sample, (tuple, list)) else None
        if self._n_columns is None and not isinstance(sample, Mapping):
            raise ConfigError("samples are bare values without columns; make tuples: map(lambda value: (value,))")
        self.encoders: dict[Any, Encoder] = {}
        for key, encoder in encoders.items():
            column = self.normal(key)
            value_of(sample, column)  # raises where it has no such column
            if column in self.encoders:
                raise ConfigError(f"two encoders are for one column: {key!r} is column {column!r}")
            self.encoders[column] = encoder

    def normal(self, key: Any) -> Any:
        """A column as it is written in a sample."""
        if self._n_columns is None or not hasattr(key, "__index__"):
            return key
        position = operator.index(key)
        return position + self._n_columns if -self._n_columns <= position < 0 else position

    def make_like(self, sample: Any, values: Mapping[Any, Any]) -> Any:
        """``sample`` with other values in some columns."""
        if isinstance(sample, Mapping):
            return {**sample, **values}
        changed = list(sample)
        for key, value in values.items():
            changed[key] = value
        if type(sample) is list:
            return changed
        return sample._make(changed) if hasattr(sample, "_make") else tuple(changed)


def check_encoders(encoders: Any) -> dict[ColumnKey, Encoder]:
    """Encoders by column; objects with ``fit`` and ``transform`` become such.

    Raises:
        ConfigError: ``encoders`` is empty, an object is not an encoder, or a column is named neither by an int nor by a string.
    """
    if not isinstance(encoders, Mapping) or not encoders:
        raise ConfigError(f"encoders are a dict with an encoder for each column to encode, got {encoders!r:.80}")
    checked: dict[ColumnKey, Encoder] = {}
    for key, encoder in encoders.items():
        is_position = hasattr(key, "__index__") and not isinstance(key, bool)
        if not is_position and not isinstance(key, str):
            raise ConfigError(f"a column is named by a position or a key, not by {key!r:.80}")
        checked[operator.index(key) if is_position else key] = as_encoder(encoder)
    return checked


def _column_name(key: ColumnKey) -> str:
    return f"column {key!r}"
