"""Samples of an iterator with encoded columns: ``iterator.encode``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from data_stack.dataset.encoders.encoder import Encoder
from data_stack.dataset.encoders.transformer import EncoderLike
from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import ColumnArray, ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.iterator.layers.encoder_fitting import (
    check_encoders,
    fit_encoders,
    name_error,
)
from data_stack.dataset.iterator.layers.mapped_meta import normalize_columns
from data_stack.dataset.iterator.layers.transformed import TransformedColumnsAccess
from data_stack.dataset.meta import DatasetMeta, column_keys
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError, ModelNotTrainedError
from data_stack.util.functions import stopped_by


@layer("encoded")
class EncodedDatasetIterator(LayerDatasetIterator):
    """The samples of ``dataset_iterator`` with some columns encoded.

    A column is encoded whenever it is read, the column of a batch in one call. Other columns pass
    through untouched, and reading one column reads only that one. Samples keep their form: tuples,
    lists, named tuples or dicts. Shapes and dtypes are those that each encoder states. A single
    sample has the values of a batch of one.

    Args:
        dataset_iterator: the samples; it is not closed.
        encoders: fitted encoders by column: a position in tuple samples (negative ones count from
            the end), or a key of dict samples.

    Raises:
        ModelNotTrainedError: an encoder is not fitted.
        ConfigError: ``encoders`` is empty, or an object is not an encoder.
        EncodingError: (when read) a value is unknown to its encoder. The error names the column,
            the value and its position.
    """

    #: The encoders by column.
    _encoders: dict[ColumnKey, Encoder]

    def __init__(
        self, dataset_iterator: DatasetIteratorIF, encoders: Mapping[ColumnKey, EncoderLike]
    ) -> None:
        self._encoders = column_keys(dataset_iterator, check_encoders(encoders))
        super().__init__(dataset_iterator, encoders=self._encoders)
        unfitted: list[str] = []
        for key, encoder in self._encoders.items():
            if not encoder.is_fitted:
                unfitted.append(f"column {key!r} ({encoder!r})")
        if unfitted:
            raise ModelNotTrainedError(
                f"encoders are not fitted: {', '.join(unfitted)}; "
                f"fit them by encode(…, fit_on=train) or fit(column)"
            )

    def make_access(self) -> SampleAccess:
        return EncodedAccess(self._below(), self._encoders)

    @property
    def encoders(self) -> dict[ColumnKey, Encoder]:
        """The encoders by column."""
        return dict(self._encoders)

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        encoders, sample_pos, target_pos = normalize_columns(
            self._dataset_iterator, meta, self._encoders
        )
        if sample_pos in encoders:
            feature_names = encoders[sample_pos].names_after(meta.feature_names)
            meta = replace(meta, feature_names=feature_names)
        if target_pos in encoders:
            encoder = encoders[target_pos]
            meta = replace(meta, target_kind=encoder.target_kind, class_names=encoder.class_names)
        return meta


class EncodedAccess(TransformedColumnsAccess):
    """Access to samples with some columns encoded.

    Args:
        below: the samples.
        encoders: fitted encoders by column.

    Attributes:
        encoders: the encoders by column.
    """

    def __init__(self, below: SampleAccess, encoders: Mapping[ColumnKey, Encoder]) -> None:
        transforms = {key: partial(_encode_column, encoder) for key, encoder in encoders.items()}
        super().__init__(below, transforms)
        self.encoders = encoders


def _encode_column(
    encoder: Encoder, key: ColumnKey, column: ColumnArray, positions: IndexArrayOfInts | None
) -> ColumnArray:
    """Return an encoded column.

    Args:
        encoder: a fitted encoder.
        key: the column, which errors name.
        column: the values.
        positions: the positions of the samples, which errors name; None for all samples in order.

    Raises:
        ConfigError: a value cannot be encoded, or the encoder returned another number of values.
    """
    try:
        encoded = encoder.transform(column)
    except ConfigError as error:
        raise name_error(error, f"column {key!r}", positions) from error
    except StopIteration as error:
        raise stopped_by(encoder.transform) from error
    if len(encoded) != len(column):
        raise ConfigError(
            f"column {key!r}: {encoder!r} made {len(encoded)} values of {len(column)}"
        )
    return encoded


def encode(
    iterator: DatasetIteratorIF,
    encoders: Mapping[ColumnKey, EncoderLike] | EncoderLike,
    fit_on: DatasetIteratorIF | None = None,
) -> DatasetIteratorIF:
    """Encode columns, as ``iterator.encode`` does.

    Args:
        iterator: the samples.
        encoders: encoders by column; a single encoder is for the sample proper.
        fit_on: the samples on which encoders that are not fitted yet are fitted.

    Raises:
        ModelNotTrainedError: an encoder is not fitted, and there is no ``fit_on``.
        ConfigError: an object is not an encoder; or ``fit_on`` has no samples, or values that an
            encoder cannot learn from.
    """
    if not isinstance(encoders, Mapping):
        meta = getattr(iterator, "dataset_meta", None)
        encoders = {getattr(meta, "sample_pos", 0): encoders}
    by_column = column_keys(iterator, check_encoders(encoders))
    unfitted = {key: encoder for key, encoder in by_column.items() if not encoder.is_fitted}
    if unfitted and fit_on is not None:
        fit_encoders(unfitted, fit_on)
    return as_iterator(iterator)._stack_layer(EncodedDatasetIterator, encoders=by_column)
