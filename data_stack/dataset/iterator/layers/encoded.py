"""Samples of an iterator with encoded columns: ``iterator.encode``, ``map_classes``, ``one_hot``."""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from data_stack.dataset.class_lists import class_list_of, common_class_list
from data_stack.dataset.encoders.categorical import OneHotEncoder
from data_stack.dataset.encoders.categories import CategoriesLearner
from data_stack.dataset.encoders.class_mapping import ClassMapping
from data_stack.dataset.encoders.encoder import Encoder, Fitting
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.encoders.transformer import EncoderLike, as_encoder
from data_stack.dataset.iterator.access import (
    OneToOneAccess,
    SampleAccess,
    access_to,
    split_positions,
)
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import Batch, Column, ColumnKey, DatasetIteratorIF, Sample
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.meta import DatasetMeta, DatasetMetaIF, MetaFactory, column_keys
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.recipes.fingerprint import fingerprint
from data_stack.exception import ConfigError, DataStackError, ModelNotTrainedError
from data_stack.util.functions import stopped_by
from data_stack.values.stacked_values import objects, stack_values
from data_stack.values.stacking import (
    SampleForm,
    join_batches,
    join_columns,
    replace_values,
    value_of,
)


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

    def __init__(
        self, dataset_iterator: DatasetIteratorIF, encoders: Mapping[ColumnKey, EncoderLike]
    ) -> None:
        self._encoders = column_keys(dataset_iterator, check_encoders(encoders))
        super().__init__(dataset_iterator, encoders=self._encoders)
        unfitted = ", ".join(
            f"column {key!r} ({encoder!r})"
            for key, encoder in self._encoders.items()
            if not encoder.is_fitted
        )
        if unfitted:
            raise ModelNotTrainedError(
                f"encoders are not fitted: {unfitted}; fit them by encode(…, fit_on=train) or fit(column)"
            )

    def make_access(self) -> SampleAccess:
        return EncodedAccess(self._below(), self._encoders)

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        encoders, sample_pos, target_pos = follow_columns(
            self._dataset_iterator, meta, self._encoders
        )
        if sample_pos in encoders:
            meta = replace(meta, feature_names=encoders[sample_pos].names_after(meta.feature_names))
        if target_pos in encoders:
            encoder = encoders[target_pos]
            meta = replace(meta, target_kind=encoder.target_kind, class_names=encoder.class_names)
        return meta

    encoders = property(lambda self: dict(self._encoders), doc="The encoders by column.")


@layer("mapped_classes", columns=["columns"])
class MappedClassesView(DatasetIteratorView):
    """The samples of ``dataset_iterator`` whose labels a class mapping names, in their order; reads the labels when it is made.

    What ``iterator.map_classes`` puts below the mapping where it drops labels. Pickled, it keeps the positions it has found.

    Args:
        dataset_iterator: the samples; it stays the caller's to close.
        mapping: which labels stay.
        columns: where the labels are; a sample stays if all of them do.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        mapping: ClassMapping,
        columns: Sequence[ColumnKey],
    ) -> None:
        below = access_to(as_iterator(dataset_iterator))
        stays = np.ones(below.n_samples, dtype=bool)
        for key, labels in zip(columns, below.columns(list(columns)), strict=True):
            if labels.ndim != 1:
                raise ConfigError(
                    f"column {key!r}: a label is a single value, not one of shape {labels.shape[1:]}"
                )
            with _naming(f"column {key!r}"):
                stays &= mapping.is_mapped(labels)
        super().__init__(dataset_iterator, np.flatnonzero(stays))
        self._made_with = {"mapping": mapping, "columns": list(columns)}


class EncodedAccess(OneToOneAccess):
    """Access to samples with some columns encoded.

    Args:
        below: the samples.
        encoders: by column, fitted.
    """

    #: How many samples to read and encode at once.
    _n_at_once: int = sys.maxsize

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
        columns = {}
        for key, encoder in self._by_column.items():
            columns[key] = self._transform(
                key, encoder, stack_values([value_of(each, key) for each in samples]), positions
            )
        return [
            replace_values(each, {key: column[row] for key, column in columns.items()})
            for row, each in enumerate(samples)
        ]

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        return join_batches(
            [self._encode_batch(part) for part in split_positions(positions, self._n_at_once)]
        )

    def _encode_batch(self, positions: IndexArrayOfInts) -> Any:
        batch: Any = self.below.batch(positions)
        if self.n_samples == 0 and not len(batch):
            return batch
        form = self._know(batch)
        encoded = {
            key: self._encode(key, each, value_of(batch, key), positions)
            for key, each in self._by_column.items()
        }
        return form.make([encoded.get(key, batch[key]) for key in form.keys])

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        # only where a position counts from the end, a sample is read to find out where that is
        if (
            self._form is None
            and self.n_samples
            and any(not isinstance(key, str) and key < 0 for key in (*self.encoders, *keys))
        ):
            self._know(self.below.sample(0))
        if positions is None and self.n_samples <= self._n_at_once:
            return self._encode_columns(keys, None)
        wanted = np.arange(self.n_samples, dtype=np.intp) if positions is None else positions
        pieces = [
            self._encode_columns(keys, part) for part in split_positions(wanted, self._n_at_once)
        ]
        return list(map(join_columns, zip(*pieces, strict=True)))

    def _encode_columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None
    ) -> list[Column]:
        found = []
        for key, column in zip(keys, self.below.columns(keys, positions), strict=True):
            encoder = self._by_column.get(key if self._form is None else self._form.normal(key))
            found.append(
                column if encoder is None else self._encode(key, encoder, column, positions)
            )
        return found

    def iterate_column(self, key: ColumnKey, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        return (
            self.below.iterate_column(key, positions)
            if isinstance(key, str) and key not in self.encoders
            else None
        )

    def _know(self, sample: Any) -> SampleForm:
        """The form of samples, found with the first sample or batch."""
        if self._form is None:
            form = SampleForm.of(sample)
            self._by_column, self._form = _by_column(form, self.encoders), form
        return self._form

    def _encode(
        self, key: ColumnKey, encoder: Encoder, column: Column, positions: IndexArrayOfInts | None
    ) -> Column:
        """An encoded column, stacked as ``read_batch`` stacks samples."""
        encoded = self._transform(key, encoder, column, positions)
        if encoded.dtype.kind != "O" or (len(encoded) == 0 and self.n_samples == 0):
            return encoded
        if len(encoded) == 0:  # only an encoded sample has its shape
            first = np.zeros(1, dtype=np.intp)
            return self._encode(key, encoder, self.below.columns([key], first)[0], first)[:0]
        return _stack(encoded)

    def _transform(
        self, key: ColumnKey, encoder: Encoder, column: Column, positions: IndexArrayOfInts | None
    ) -> Column:
        try:
            encoded = encoder.transform(column)
        except ConfigError as error:
            raise _placed(error, f"column {key!r}", positions) from error
        except StopIteration as error:
            raise stopped_by(encoder.transform) from error
        if len(encoded) != len(column):
            raise ConfigError(
                f"column {key!r}: {encoder!r} made {len(encoded)} values of {len(column)}"
            )
        return encoded


def stack_in_turn(values: Iterator[Any], n_rows: int) -> Column:
    """Encoded values as a column; arrays of one shape and dtype go straight into it, so that few are in memory.

    Args:
        values: at least one.
        n_rows: their number.
    """
    whole, others = np.empty(0), list[Any]()
    for row, value in enumerate(values):
        is_array = (
            type(value) is np.ndarray and value.dtype.isnative and value.dtype.kind in "biufc"
        )
        found = value if is_array else _stack(objects([value]))[0]
        if row == 0 and isinstance(found, np.ndarray):
            whole = np.empty((n_rows, *found.shape), found.dtype)
        is_alike = (
            isinstance(found, np.ndarray)
            and found.ndim
            and (found.shape, found.dtype) == (whole.shape[1:], whole.dtype)
        )
        if is_alike and not others:
            whole[row] = found
        else:
            others = others or list(whole[:row])
            others.append(value)
    return _stack(objects(others)) if others else whole


def _stack(encoded: Column) -> Column:
    """A column of objects, stacked where they are neither text nor bytes."""
    types = set(map(type, encoded.tolist()))
    return encoded if types <= {str, bytes, type(None)} else stack_values(list(encoded))


def follow_columns(
    iterator: DatasetIteratorIF, meta: DatasetMetaIF, by_column: Mapping[ColumnKey, Any]
) -> tuple[Mapping[ColumnKey, Any], ColumnKey, ColumnKey]:
    """``by_column``, and where a meta has sample and target, as columns are written in a sample: positions from 0 on, or keys."""
    sample_pos, target_pos = meta.sample_pos, meta.target_pos
    if any(
        isinstance(key, int) and key < 0 for key in (*by_column, sample_pos, target_pos)
    ) and len(iterator):
        form = SampleForm.of(
            as_iterator(iterator)[0]
        )  # only with a sample is it known where the end is
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
        raise ConfigError(
            f"encoders are a dict with an encoder for each column to encode, got {encoders!r:.80}"
        )
    checked: dict[ColumnKey, Encoder] = {}
    for key, encoder in encoders.items():
        is_position = hasattr(key, "__index__") and not isinstance(key, bool)
        if not is_position and not isinstance(key, str):
            raise ConfigError(f"a column is named by a position or a key, not by {key!r:.80}")
        checked[operator.index(key) if is_position else key] = as_encoder(encoder)
    return checked


def encode(
    iterator: DatasetIteratorIF,
    encoders: Mapping[ColumnKey, EncoderLike] | EncoderLike,
    fit_on: DatasetIteratorIF | None = None,
) -> DatasetIteratorIF:
    """``iterator.encode``: columns encoded.

    Raises:
        ModelNotTrainedError: an encoder is not fitted, and there is no ``fit_on``.
        ConfigError: an object is not an encoder; or ``fit_on`` has no samples, or values that an encoder cannot learn from.
    """
    sample_pos = getattr(getattr(iterator, "dataset_meta", None), "sample_pos", 0)
    by_column = column_keys(
        iterator,
        check_encoders(encoders if isinstance(encoders, Mapping) else {sample_pos: encoders}),
    )
    unfitted = {key: encoder for key, encoder in by_column.items() if not encoder.is_fitted}
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
        raise ConfigError(
            f"encoders cannot be fitted on an iterator without samples (columns {', '.join(map(repr, encoders))})"
        )
    fitted = [getattr(encoder, "transformer", encoder) for encoder in encoders.values()]
    if len(set(map(id, fitted))) < len(fitted):
        raise ConfigError(
            f"two of the columns {', '.join(map(repr, encoders))} share one encoder that is not fitted"
        )
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


def _placed(
    error: ConfigError, where: str, positions: IndexArrayOfInts | None = None
) -> ConfigError:
    """The error of an encoder, saying where it was; ``positions`` are those of what it encodes."""
    if isinstance(error, EncodingError):
        return error.within(where, None if positions is None else int(positions[error.position]))
    return ConfigError(f"{where}: {error}")


@contextlib.contextmanager
def _naming(where: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise _placed(error, where) from error


def map_classes(
    iterator: DatasetIteratorIF,
    mapping: ClassMapping | Mapping[Any, Any],
    columns: Sequence[ColumnKey] | None = None,
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
    iterator: DatasetIteratorIF,
    classes: Sequence[Any] | ClassMapping | None = None,
    column: ColumnKey | None = None,
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
        source, _ = access_to(
            stacked
        ).unwrap()  # directly below or below layers that only choose samples
        encoder = source.encoders.get(key) if isinstance(source, EncodedAccess) else None
        is_mapping = isinstance(encoder, ClassMapping) and encoder.unmapped != "keep"
        classes = (
            encoder if is_mapping else getattr(meta, "class_names", None) if is_target else None
        )
        classes = _classes_of(stacked, key) if classes is None else classes
    return stacked._stack_layer(EncodedDatasetIterator, encoders={key: OneHotEncoder(classes)})


def with_common_classes(iterators: Sequence[Any], classes: str) -> list[Any]:
    """The iterators with labels that are numbers in one list of classes.

    Args:
        iterators: whose classes are known.
        classes: ``"by name"`` numbers the labels by the names of their classes; ``"first"`` forgets the classes of all but the
            first.

    Raises:
        ConfigError: the classes of an iterator are unknown, its targets are one-hot vectors, or ``classes`` is something else.
    """
    if classes not in ("by name", "first"):
        raise ConfigError(
            f"classes must be 'same', 'by name' or, of zip, 'first', got {classes!r:.40}"
        )
    if classes == "first":
        return [iterators[0], *(_without_classes(iterator) for iterator in iterators[1:])]
    lists = []
    for number, iterator in enumerate(iterators):
        names = class_list_of(iterator)
        if names is None:
            raise ConfigError(
                f"the classes of iterator {number} are unknown: its meta has no class_names; "
                f"name them, such as from_numpy(…, target=1, class_names=[…])"
            )
        if iterator.dataset_meta.target_kind == "one_hot" and names != class_list_of(iterators[0]):
            raise ConfigError(
                f"the targets of iterator {number} are one-hot vectors; combine the labels, then call one_hot()"
            )
        lists.append(names)
    common = common_class_list(lists)
    return [
        _renumbered(iterator, names, common)
        for iterator, names in zip(iterators, lists, strict=True)
    ]


def _renumbered(iterator: Any, names: Sequence[Any], common: Sequence[Any]) -> Any:
    """An iterator whose labels, numbers in ``names``, are numbers in ``common``; labels that are names stay."""
    if tuple(names) == tuple(common):
        return iterator
    meta = MetaFactory.copy_dataset_meta(iterator.dataset_meta)
    number_of = {name: number for number, name in enumerate(common)}
    # OpenML and others write -1 for a missing label, pandas None.
    mapping: dict[Any, Any] = {-1: -1, None: None}
    mapping |= {old: number_of[name] for old, name in enumerate(names)}
    are_numbers = True
    if len(iterator):
        first = iterator.read_column(meta.target_pos, [0])
        are_numbers = first.dtype.kind in "iu" or isinstance(
            first[0], (int, np.integer, type(None))
        )
    stacked: Any = iterator
    if are_numbers and any(old != new for old, new in mapping.items()):
        stacked = map_classes(iterator, ClassMapping(mapping, unmapped="error"))
        meta = MetaFactory.copy_dataset_meta(stacked.dataset_meta)
    return stacked._with_meta(replace(meta, target_kind="label", class_names=tuple(common)))


def _without_classes(iterator: Any) -> Any:
    if class_list_of(iterator) is None:
        return iterator
    meta = MetaFactory.copy_dataset_meta(iterator.dataset_meta)
    return iterator._with_meta(replace(meta, class_names=None))


def _classes_of(iterator: DatasetIteratorIF, key: ColumnKey) -> list[Any]:
    if len(iterator) == 0:
        raise ConfigError("an empty iterator has no classes; pass them: iterator.one_hot(classes)")
    learner = CategoriesLearner()
    for start, (labels,) in _blocks(iterator, [key]):
        with _naming(f"column {key!r}"):
            if labels.ndim != 1:
                raise ConfigError(f"labels must be single values, got the shape {labels.shape[1:]}")
            learner.add(labels, start)
    return learner.finish()["categories"]  # type: ignore[no-any-return]  # a list


def _blocks(iterator: DatasetIteratorIF, keys: list[ColumnKey]) -> Iterator[tuple[int, list[Any]]]:
    """Columns in blocks of some megabytes, with the position of the first value of each."""
    source = access_to(iterator)
    return in_blocks(source.n_samples, lambda positions: source.columns(keys, positions))
