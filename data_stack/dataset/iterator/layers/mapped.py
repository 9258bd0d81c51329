"""A function of each sample of an iterator, or of one of its columns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from data_stack.dataset.iterator.access import (
    OneToOneAccess,
    SampleAccess,
    split_positions,
    stack_columns,
)
from data_stack.dataset.iterator.contract import Batch, Column, ColumnKey, DatasetIteratorIF, Sample
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.iterator.layers.encoded import EncodedAccess, follow_columns, stack_in_turn
from data_stack.dataset.meta import DatasetMeta, IteratorMeta, column_key
from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.dataset.randomness import Draw, derive_generator, derive_seed
from data_stack.exception import ConfigError
from data_stack.util.functions import call_for_each, check_takes, explain_tuple_index, stopped_by
from data_stack.values.stacked_values import as_array, exact_array, objects, stack_values
from data_stack.values.stacking import (
    SampleForm,
    join_columns,
    list_samples,
    list_values,
    replace_values,
    value_of,
)

# Samples to read and map at once for a column: enough for efficient batches, few enough to keep in memory.
_SAMPLES_AT_ONCE = 1024


@layer("mapped")
class MappedDatasetIterator(LayerDatasetIterator):
    """Sample ``i`` is ``function`` of sample ``i`` below, called whenever the sample is read; nothing is kept.

    The function may return any sample: a tuple, a dict, a bare value. It must not modify its
    argument in place, which may be the memory of the dataset. Its exceptions are not changed, except for StopIteration, which
    would end a loop over the samples: it becomes an :class:`~data_stack.exception.EarlyEndError`. To reach a worker process by
    pickling it must be a function or method that pickle finds by its name, so no lambda.

    A batched function takes and returns columns, as ``read_batch`` returns them, so that many samples share its cost::

        iterator.map(lambda batch: (batch[0] / np.float32(255), batch[1]), batched=True)

    It must treat each row by itself, for rows come in batches of any size: ``iterator[i]`` is row 0 of the function of a
    batch of one, so a number in it is a numpy scalar. It is never called with an empty batch. It returns a tuple or dict of
    columns, or one column of bare values; a column is an array, a tensor or a list with one element for each row.

    A random function asks for a ``seed``. As its second argument it then gets a ``numpy.random.Generator`` made for
    this sample, or if ``batched`` a list of them, one for each row. Each depends on seed, epoch and the sample's position in
    this iterator alone: a sample does not depend on order, batch, worker or process, and differs from epoch to
    epoch. (A generator takes 4 µs to make.)

    An empty request for columns calls the function for sample 0, to know what columns there are; an empty iterator has none.

    With a ``column`` the function takes and returns the values of that column only; the others pass through, and reading them
    does not call it. Values arrive as a filter's do: numbers as Python's, values with a shape as arrays, times as numpy's, all
    others as they are in the sample. A batched function takes and returns the column. All columns keep their names; if the column
    is the target, its class names and kind are dropped from the meta, and if it is the sample proper, its feature names.

    A function of whole samples may move columns, so that they lose their names, and the sample proper those of its features,
    unless ``names`` declares the new ones. Sample, target and tag are then where the columns of their names are. Without
    ``names`` the meta's positions, classes and target kind stay: where the function changes what the target is, or where, say so
    with an ``InformedDatasetIterator`` around this one.

    Args:
        dataset_iterator: the samples; it stays the caller's to close.
        function: ``(sample) -> sample``, or with ``batched`` ``(batch) -> batch``; with ``seed`` of two arguments.
        batched: which of the two.
        seed: an int for a random function, otherwise None.
        epoch: an int; without a seed it has no meaning.
        column: position, name or key of the only column to map; None for whole samples.
        names: of the columns of the tuples that the function returns; None if they are unknown.

    Raises:
        ConfigError: ``function`` cannot be called with one argument (with ``seed``, two); ``seed`` or ``epoch`` is not an
            integer; ``names`` are not distinct strings or given together with ``column``. When reading: a batched
            function returned no columns, or columns of another length than its batch; samples are not
            tuples of as many columns as ``names``.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        function: Callable[..., Any],
        *,
        batched: bool = False,
        seed: int | None = None,
        epoch: int = 0,
        column: ColumnKey | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        if not callable(function):
            raise ConfigError(f"a map needs a function of a sample, got {function!r}")
        if isinstance(column, (list, tuple)):
            raise ConfigError(
                f"column= names one column, got {column!r:.80}; a function of several takes the sample, with columns="
            )
        what = (
            ("a batch" if batched else "a sample")
            if column is None
            else ("a column" if batched else "a value")
        )
        hint = (
            ""
            if column is not None
            else "Take the sample apart inside: image, label = sample. Or map one column: column=…. "
        )
        hint += "" if seed is not None else "A random function needs a seed: map(function, seed=7)"
        check_takes(
            function, [what] if seed is None else [what, "a random generator"], hint.rstrip(". ")
        )
        arguments: dict[str, Any] = {"function": function, "batched": bool(batched)}
        if column is not None:
            arguments["column"] = column_key(dataset_iterator, column)
        if names is not None:
            arguments["names"] = _check_names(names, column)
        checked_epoch = check_integer("epoch", epoch)
        self._mixed_seed: int | None = None
        if seed is not None:  # without a seed each epoch is the same
            arguments |= {"seed": check_integer("seed", seed), "epoch": checked_epoch}
            self._mixed_seed = derive_seed("mapped", arguments["seed"], checked_epoch)
            self._draw = Draw(arguments["seed"], checked_epoch, self._mixed_seed)
        super().__init__(dataset_iterator, **arguments)

    def make_access(self) -> SampleAccess:
        function, batched = self._made_with["function"], self._made_with["batched"]
        if (column := self._made_with.get("column")) is not None:
            return _ColumnMapAccess(self._below(), column, function, batched, self._mixed_seed)
        if (names := self._made_with.get("names")) is not None:
            function = partial(_call_named, function, names)
        return (_BatchMapAccess if batched else _MapAccess)(
            self._below(), function, self._mixed_seed
        )

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        derived, names = meta, self._made_with.get("names")
        if (column := self._made_with.get("column")) is not None:
            columns, sample_pos, target_pos = follow_columns(
                self._dataset_iterator, meta, {column: None}
            )
            if sample_pos in columns:
                derived = replace(derived, feature_names=None)
            return (
                replace(derived, target_kind=None, class_names=None)
                if target_pos in columns
                else derived
            )
        before = derived.column_names or ()
        kinds = tuple(
            pair
            for pair in derived.column_kinds or ()
            if pair[0] not in before or pair[0] in (names or ())
        )
        lost = () if before or derived.column_names == () else None
        derived = replace(
            derived,
            feature_names=None,
            column_names=lost if names is None else names,
            column_kinds=kinds or None,
        )
        if names is None:
            return derived
        roles = {"sample": meta.sample_pos, "target": meta.target_pos, "tag": meta.tag_pos}
        positions = IteratorMeta(*[_follow(role, at, before, names) for role, at in roles.items()])
        if positions.target_pos == "target":
            derived = replace(derived, target_kind=None, class_names=None)
        return replace(derived, iterator_meta=positions)


def _follow(
    role: str, position: ColumnKey, before: Sequence[str], names: Sequence[str]
) -> ColumnKey:
    """Where the sample, the target or the tag is after a map that returns columns of these ``names``."""
    if isinstance(position, str):
        return names.index(position) if position in names else role  # of dicts before
    width = len(before) or len(names)
    position = position + width if -width <= position < 0 else position
    if position < len(before) and before[position] in names:
        return names.index(before[position])
    is_free = 0 <= position < len(names) and names[position] not in before
    return position if is_free else role  # the role's word names no column


def _check_names(names: Any, column: ColumnKey | None) -> tuple[str, ...]:
    if column is not None:
        raise ConfigError(
            "a map of one column keeps the names of all; columns= declares those after a map of whole samples"
        )
    are_names = (
        not isinstance(names, str)
        and bool(names)
        and all(isinstance(name, str) and name for name in names)
    )
    if not are_names or len(set(names)) < len(names):
        raise ConfigError(
            f"columns= takes distinct names of the mapped columns, such as ['image', 'label'], got {names!r:.80}"
        )
    return tuple(names)


def _call_named(
    function: Callable[..., Any], names: Sequence[str], sample: Any, *random: Any
) -> Any:
    """What ``function`` returns, after checking its number of columns."""
    mapped = function(sample, *random)
    form = SampleForm.of(mapped)
    if form.kind != "tuple" or len(form.keys) != len(names):
        what = f"{len(form.keys)} columns" if form.kind == "tuple" else f"a {type(mapped).__name__}"
        raise ConfigError(
            f"a map to columns={[*names]} must return tuples of {len(names)} columns; its function returned {what}"
        )
    return mapped


class _MapAccess(OneToOneAccess):
    """Access to what a function returns for each sample.

    Args:
        below: the samples.
        function: of a sample; with a seed, also of a random generator.
        mixed_seed: of the draws; None for a function without.
    """

    def __init__(
        self, below: SampleAccess, function: Callable[..., Any], mixed_seed: int | None
    ) -> None:
        super().__init__(below)
        self._read_below = below.make_sample_reader()
        self._function = function
        self._mixed_seed = mixed_seed

    @property
    def stacks_samples(self) -> bool:  # type: ignore[override]  # read-only here
        return self.below.stacks_samples

    def sample(self, position: int) -> Sample:
        sample = self._read_below(position)
        try:
            if self._mixed_seed is None:
                return self._function(sample)
            return self._function(sample, derive_generator(self._mixed_seed, position))
        except StopIteration as error:
            raise stopped_by(self._function) from error
        except TypeError as error:
            explained = explain_tuple_index(error, sample)
            if explained is error:
                raise
            raise explained from error

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        parts = split_positions(positions, self.below.n_at_once)
        return [
            sample
            for part in parts
            for sample in self._map(self.below.samples(part), part.tolist())
        ]

    def _map(self, samples: Iterable[Sample], positions: Iterable[int]) -> Iterator[Sample]:
        if self._mixed_seed is None:
            return call_for_each(self._function, samples)
        return self._map_drawing(self._mixed_seed, samples, positions)

    def _map_drawing(
        self, mixed_seed: int, samples: Iterable[Sample], positions: Iterable[int]
    ) -> Iterator[Sample]:
        try:
            for sample, position in zip(samples, positions, strict=True):
                yield self._function(sample, derive_generator(mixed_seed, position))
        except StopIteration as error:
            raise stopped_by(self._function) from error

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        wanted = np.arange(self.n_samples, dtype=np.intp) if positions is None else positions
        if not len(wanted):
            at_first = np.zeros(1, dtype=np.intp)
            return (
                [column[:0] for column in self.columns(keys, at_first)]
                if self.n_samples
                else [np.empty(0) for _ in keys]
            )
        starts = range(0, len(wanted), _SAMPLES_AT_ONCE)
        blocks = [
            self._some_columns(keys, wanted[start : start + _SAMPLES_AT_ONCE]) for start in starts
        ]
        return [join_columns(pieces) for pieces in zip(*blocks, strict=True)]

    def _some_columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts) -> list[Column]:
        return stack_columns(self.samples(positions), keys, self)

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return self._map(self.below.iterate(start, stop), range(start, stop))


class _BatchMapAccess(_MapAccess):
    """Access to what a function returns for batches; it is never called with an empty batch."""

    stacks_samples = False

    def sample(self, position: int) -> Sample:
        return self.samples(np.array([position], dtype=np.intp))[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        return list_samples(self.batch(positions)) if len(positions) else []

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        if not len(positions):
            return self.empty_batch()
        batch = self.below.batch(positions)
        mapped = _call_batched(self._function, batch, self._mixed_seed, positions)
        n_rows = len(positions)
        if isinstance(mapped, Mapping) and mapped:
            return {
                key: _check_column(column, n_rows, " in column", key, self._function)
                for key, column in mapped.items()
            }
        if isinstance(mapped, tuple) and mapped:
            return tuple(
                [
                    _check_column(column, n_rows, " in column", key, self._function)
                    for key, column in enumerate(mapped)
                ]
            )
        return _check_column(mapped, n_rows, "", None, self._function)

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return _grow_reads(self.samples, start, stop)

    def _some_columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts) -> list[Column]:
        batch = self.batch(positions)
        return (
            stack_columns(batch, keys, self)
            if isinstance(batch, np.ndarray)
            else [value_of(batch, key) for key in keys]
        )


class _ColumnMapAccess(EncodedAccess):
    """Access to samples with a function of one column.

    Args:
        below: the samples.
        key: of the column.
        function: of a value, or ``batched`` of a column; where there is a seed, also of a random generator, or one for each.
        batched: which of the two.
        mixed_seed: of the draws; None for a function without.
    """

    def __init__(
        self,
        below: SampleAccess,
        key: ColumnKey,
        function: Callable[..., Any],
        batched: bool,
        mixed_seed: int | None,
    ) -> None:
        super().__init__(below, {key: function})
        self._read_below = below.make_sample_reader()
        self._key, self._function, self._batched, self._mixed_seed = (
            key,
            function,
            batched,
            mixed_seed,
        )

    _n_at_once = property(lambda self: sys.maxsize if self._batched else self.below.n_at_once)

    def sample(self, position: int) -> Sample:
        return (
            super().sample(position)
            if self._batched
            else self._map(self._read_below(position), position)
        )

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        if self._batched:
            return super().samples(positions)
        parts = split_positions(positions, self._n_at_once)
        return [
            sample
            for part in parts
            for sample in map(self._map, self.below.samples(part), part.tolist())
        ]

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        values = self.iterate_column(self._key, positions) if len(positions) > 1 else None
        if values is None:
            return super().batch(positions)
        declared = self.below.declare_columns()
        form: Any = self._form or self._know(
            dict.fromkeys(declared) if declared else self.below.batch(positions[:1])
        )
        mapped = stack_in_turn(values, len(positions))
        others = [key for key in form.keys if key != self._key]
        found = dict(
            zip(others, self.below.columns(others, positions) if others else (), strict=True)
        )
        return form.make([found.get(key, mapped) for key in form.keys])  # type: ignore[no-any-return]  # a batch

    def iterate_column(self, key: ColumnKey, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        if self._batched or not (
            isinstance(self._key, str) or self._key >= 0
        ):  # where the end is, only a sample says
            return None
        values = self.below.iterate_column(key, positions)
        return (
            values
            if values is None or key != self._key
            else map(self._call, map(_natural, values), positions.tolist())
        )

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        if self._batched:
            return _grow_reads(self.samples, start, stop)
        return map(self._map, self.below.iterate(start, stop), range(start, stop))

    def _map(self, sample: Any, position: int) -> Sample:
        key = self._know(sample).normal(self._key)
        return replace_values(sample, {key: self._call(_natural(value_of(sample, key)), position)})

    def _call(self, value: Any, position: int) -> Any:
        try:
            if self._mixed_seed is None:
                return self._function(value)
            return self._function(value, derive_generator(self._mixed_seed, position))
        except StopIteration as error:
            raise stopped_by(self._function) from error

    def _transform(
        self, key: ColumnKey, encoder: Any, column: Column, positions: IndexArrayOfInts | None
    ) -> Column:
        if not len(column):
            return np.empty(0, object)
        if positions is None:
            positions = np.arange(len(column), dtype=np.intp)
        if not self._batched:
            values = map(_natural, list_values(column))
            return objects(list(map(self._call, values, positions.tolist())))
        mapped = _call_batched(self._function, column, self._mixed_seed, positions)
        return _check_column(mapped, len(column), " for column", key, self._function)


def _natural(value: Any) -> Any:
    """A value of a sample as a column has it: numbers as Python's, lists and tensors of numbers as arrays."""
    array = None if isinstance(value, np.ndarray) else exact_array(value)
    if array is None or array.dtype.kind in "mMV":
        return value
    return array if array.ndim else array.item()


def _call_batched(
    function: Callable[..., Any], batch: Any, seed: int | None, positions: IndexArrayOfInts
) -> Any:
    """What ``function`` returns for a batch; with a seed it also gets a random generator for each row."""
    try:
        if seed is None:
            return function(batch)
        generators = [derive_generator(seed, position) for position in positions.tolist()]
        return function(batch, generators)
    except StopIteration as error:
        raise stopped_by(function) from error


def _check_column(
    values: Any, n_rows: int, where: str, key: ColumnKey | None, function: Callable[..., Any]
) -> Column:
    """Return the values that a batched function returned as :func:`stack_values` stacks them one by one.

    Args:
        values: an array, a tensor or a list.
        n_rows: the number of values expected.
        where: what to say of the column in an error, before its ``key``.
        key: of the column; None for one column of bare values.
        function: the function, for the error.

    Raises:
        ConfigError: they are no such values.
    """
    column: Column | None = None
    if hasattr(values, "__array__"):
        try:
            array = as_array(values)
        except TypeError:  # a tensor of a dtype that numpy lacks
            array = stack_values(list(values))
        # of these kinds single values are Python objects, and objects may be numbers
        are_objects = array.ndim == 1 and array.dtype.kind in "OSU"
        column = stack_values(array.tolist()) if are_objects else array
    elif isinstance(values, Sequence) and not isinstance(values, (str, bytes)):
        column = stack_values(list(values))
    if column is not None and column.ndim and len(column) == n_rows:
        return column
    if column is not None and column.ndim:
        what = f"{len(column)} values"
    else:
        what = f"a {type(values).__name__}"
    place = where if key is None else f"{where} {key!r}"
    raise ConfigError(
        f"a batched map returned {what}{place}; expected an array, tensor or list of {n_rows} values "
        f"(a list is one column, several columns are a tuple): its function is {function!r}"
    )


def _grow_reads(
    read: Callable[[IndexArrayOfInts], list[Sample]], start: int, stop: int
) -> Iterator[Sample]:
    """Samples one after the other, read in batches that grow from 1, so that the first one comes soon."""
    n_ahead = 1
    while start < stop:
        end = min(start + n_ahead, stop)
        yield from read(np.arange(start, end, dtype=np.intp))
        start, n_ahead = end, min(2 * n_ahead, 256)
