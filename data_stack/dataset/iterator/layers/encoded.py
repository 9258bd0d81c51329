"""Samples of an iterator with encoded columns."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from data_stack.dataset.encoders.categorical import ClassMapping
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
from data_stack.values.forms import SampleForm, replace_values
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
        self._form: SampleForm | None = None
        self._by_column: Mapping[Any, Any] = encoders

    def sample(self, position: int) -> Sample:
        return self.samples(np.array([position], dtype=np.intp))[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        samples = self.below.samples(positions)
        if not samples:
            return []
        self._know(samples[0])
        columns = {
            key: self._transform(key, encoder, stack_values([value_of(sample, key) for sample in samples]), positions)
            for key, encoder in self._by_column.items()
        }
        return [
            replace_values(sample, {key: column[row] for key, column in columns.items()}) for row, sample in enumerate(samples)
        ]

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        batch: Any = self.below.batch(positions)
        if self.n_samples == 0 and not len(batch):
            return batch  # type: ignore[no-any-return]  # a batch
        form = self._know(batch)
        encoded = {key: self._encode(key, encoder, column_of(batch, key), positions) for key, encoder in self._by_column.items()}
        return form.make([encoded.get(key, batch[key]) for key in form.keys])  # type: ignore[no-any-return]  # a batch

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[Column]:
        # only where a position counts from the end, a sample is read to find out where that is
        if self._form is None and self.n_samples and any(not isinstance(key, str) and key < 0 for key in (*self.encoders, *keys)):
            self._know(self.below.sample(0))
        found = []
        for key, column in zip(keys, self.below.columns(keys, positions), strict=True):
            encoder = self._by_column.get(key if self._form is None else self._form.normal(key))
            found.append(column if encoder is None else self._encode(key, encoder, column, positions))
        return found

    def _know(self, sample: Any) -> SampleForm:
        """The form of samples, found with the first sample or batch."""
        if self._form is None:
            form = SampleForm.of(sample)
            self._by_column, self._form = _by_column(form, self.encoders), form
        return self._form

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


def follow_columns(
    iterator: DatasetIteratorIF, meta: DatasetMetaIF, by_column: Mapping[ColumnKey, Any]
) -> tuple[Mapping[ColumnKey, Any], ColumnKey, ColumnKey]:
    """``by_column``, and where a meta has sample and target, as columns are written in a sample: positions from 0 on, or keys."""
    sample_pos, target_pos = meta.sample_pos, meta.target_pos
    if any(isinstance(key, int) and key < 0 for key in (*by_column, sample_pos, target_pos)) and len(iterator):
        form = SampleForm.of(as_iterator(iterator)[0])  # only with a sample is it known where the end is
        return _by_column(form, by_column), form.normal(sample_pos), form.normal(target_pos)
    return by_column, sample_pos, target_pos


def _by_column(form: SampleForm, values: Mapping[ColumnKey, Any]) -> dict[Any, Any]:
    return dict(zip(form.find_all(list(values)), values.values(), strict=True))


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
