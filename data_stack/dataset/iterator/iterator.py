"""The contract that everything which gives samples fulfils: random access, batches, columns."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Protocol, SupportsIndex, TypeVar, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.fluent import FluentIterator
from data_stack.dataset.iterator.positions import Positions, narrowed
from data_stack.dataset.iterator.registry import LAYERS
from data_stack.dataset.iterator.stacking import Batch, Column, column_of, emptied, stack_samples, stack_values, value_of
from data_stack.dataset.meta import DatasetMetaIF, MetaFactory
from data_stack.exception import ConfigError, DatasetOutOfBoundsError

__all__ = [
    "Batch",
    "Column",
    "ColumnKey",
    "DatasetIterator",
    "DatasetIteratorIF",
    "DeclaredColumn",
    "IndexArray",
    "Indexable",
    "InformedDatasetIteratorIF",
    "Sample",
    "adapted",
    "batch_at",
    "checked_index",
    "checked_indices",
    "checked_integer",
    "checked_positions",
    "column_at",
    "column_key",
    "column_keys",
    "column_names",
    "columns_at",
    "declared_columns",
    "has_fixed_columns",
    "out_of_bounds",
    "whole",
]

_Value = TypeVar("_Value")

Sample = Any
"""What ``iterator[i]`` gives: a tuple ``(sample, target, tag)``, a dict of fields, or a bare value."""

ColumnKey = Union[int, str]
"""Names a column: a position in tuple samples, a key of dict samples."""

IndexArray = Union[npt.NDArray[Any], Sequence[int], Sequence[bool], range, slice]
"""Positions of samples: integers (negative ones count from the end), or one bool for each sample."""

IndexArrayOfInts = npt.NDArray[np.integer[Any]]

# Ways to the samples that wrappers shorten, and what the default of each is built on.
_BUILT_ON = {
    "__iter__": ("__getitem__", "__len__"),
    "__getitems__": ("__getitem__", "__len__"),
    "read_batch": ("__getitem__", "__len__"),
    "read_column": ("__getitem__", "__len__"),
    "_located": ("__getitem__", "__len__"),
    "_unchecked_reader": ("__getitem__", "__len__"),
}

# Ways that are short because they check nothing, and whose redefinition makes them lead past what was redefined.
_SHORTCUTS = {
    "_batch_at": ("read_batch", "__getitem__", "__len__"),
    "_column_at": ("read_column", "__getitem__", "__len__"),
    "_columns_at": ("read_column", "read_batch", "__getitem__", "__len__"),
    "_has_fixed_columns": ("read_batch", "__getitem__", "__len__"),
    "_declared_columns": ("read_batch", "__getitem__", "__len__"),
    "_source_content": ("read_batch", "__getitem__", "__len__", "_open_columns"),
}


def _depth(mro: tuple[type, ...], name: str) -> int:
    """How far up the ancestry ``name`` is defined."""
    return next((depth for depth, ancestor in enumerate(mro) if name in vars(ancestor)), len(mro))


class DeclaredColumn(NamedTuple):
    """What a schema says of a column: its type (None if values tell more), the extents of a value (None: they vary), and more."""

    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None
    is_nullable: bool = False


class DatasetIteratorIF(FluentIterator, ABC):
    """Samples with a length and random access.

    A subclass defines ``__len__``, ``__getitem__`` for ints from 0 to ``len - 1``, and ``underlying_iterators``. It
    need not call ``super().__init__()``: this class keeps no state. Wrappers resolve negative, numpy and boolean indices
    before they ask, so a plain ``__getitem__`` suffices everywhere; one that shall itself understand slices and index
    arrays ends in :func:`data_stack.dataset.iterator.sample_or_view`.

    A subclass that redefines ``__getitem__`` or ``__len__`` gets the defaults below for whatever it does not redefine
    along with it, even where its parent had a faster way: that way leads to the parent's samples, not to its own.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        mro = cls.__mro__
        for name, foundations in _BUILT_ON.items():
            if _depth(mro, name) > min(_depth(mro, foundation) for foundation in foundations):
                setattr(cls, name, DatasetIteratorIF.__dict__[name])
        # These are not taken away, because what the parent has of them may call them: super().read_batch() does.
        cls._shortcuts = frozenset(
            name
            for name, passed_by in _SHORTCUTS.items()
            if _depth(mro, name) <= min(_depth(mro, foundation) for foundation in passed_by)
        )
        if cls._layer_name is not None and "_layer_name" in vars(cls):
            LAYERS[cls._layer_name] = cls

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples, exact, known without reading them."""
        raise NotImplementedError

    @abstractmethod
    def __getitem__(self, index: Any) -> Any:
        """The sample at an int position; iterators of data_stack also give a view for a slice or an index array.

        Raises:
            DatasetOutOfBoundsError: the position lies outside; it is an IndexError.
        """
        raise NotImplementedError

    @property
    @abstractmethod
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterators that this one is stacked on; empty at a source."""
        raise NotImplementedError

    def __repr__(self) -> str:
        try:
            n_samples = f"{len(self):,} samples"
        except Exception:  # noqa: BLE001  # whatever is wrong with it, it can be shown
            n_samples = "unknown length"
        return f"<{type(self).__name__}: {n_samples}>"

    def __iter__(self) -> Iterator[Sample]:
        for position in range(len(self)):
            yield self[position]

    def __getitems__(self, indices: IndexArray) -> list[Sample]:
        """The samples at ``indices``, in that order (PyTorch's protocol for fetching a batch).

        Raises:
            DatasetOutOfBoundsError: one of the positions lies outside.
        """
        return [self[position] for position in checked_indices(indices, len(self)).tolist()]

    def read_batch(self, indices: IndexArray) -> Batch:
        """The samples at ``indices`` as stacked columns, each of shape ``(len(indices), ...)``.

        Tuple (and list) samples give a tuple of arrays, dict samples a dict of arrays, bare samples one array. Values
        that have no common shape, strings, bytes and other objects give an object array; a source that has numpy's own arrays of
        strings hands these out. Tensors arrive as numpy arrays.
        For no indices the columns are empty, with the dtype and shape of sample 0; of an empty iterator the batch is ``()``.

        Raises:
            DatasetOutOfBoundsError: one of the positions lies outside.
            ConfigError: the samples differ in their number of columns or in their keys.
        """
        samples = self.__getitems__(indices)
        if not samples and len(self):
            return emptied(stack_samples([self[0]]))
        return stack_samples(samples)

    def read_column(self, key: ColumnKey, indices: IndexArray | None = None) -> Column:
        """One column of the samples at ``indices`` (None: of all), shape ``(n, ...)``, stacked as in :meth:`read_batch`.

        The array may share its memory with the iterator: do not write into it.

        Raises:
            DatasetOutOfBoundsError: one of the positions lies outside.
            ConfigError: the samples have no such column.
        """
        key = column_key(self, key)
        samples = self if indices is None else self.__getitems__(indices)
        values = [value_of(sample, key) for sample in samples]
        if not values and len(self):
            return stack_values([value_of(self[0], key)])[:0]
        return stack_values(values)

    # ------------------------------------------------------------------ for wrappers: shorter ways, and what a layer is

    # What follows is private to data_stack: a wrapper may lean on it, a client's class has the defaults.

    _layer_name: ClassVar[str | None] = None
    """Stands for the class in a recipe. A subclass that does not set it anew describes itself as no layer."""

    def _located(self) -> tuple[DatasetIteratorIF, Positions | None]:
        """Where the samples come from: a source and their positions in it (None: all of it, in order).

        Wrappers that only rearrange samples name what lies below them here, so that a stack of them is read in one request.
        """
        return self, None

    def _unchecked_reader(self) -> Callable[[int], Sample]:
        """A function that gives the sample at an int position in ``[0, len(self))``, and need not check it."""
        return self.__getitem__

    _shortcuts: ClassVar[frozenset[str]] = frozenset()
    """Which of the following six are of the samples of this very class. Wrappers ask :func:`batch_at` and its like."""

    def _batch_at(self, positions: IndexArrayOfInts) -> Batch:
        """:meth:`read_batch` for positions of an integer array, each known to be in ``[0, len(self))``."""
        return self.read_batch(positions)

    def _column_at(self, key: ColumnKey, positions: IndexArrayOfInts | None) -> Column:
        """:meth:`read_column`, likewise; None: all positions."""
        return self.read_column(key, positions)

    def _columns_at(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None) -> list[Column]:
        """Several columns, likewise, in one request; where the class reads no column by itself, each sample is read once."""
        keys = [column_key(self, key) for key in keys]
        if len(keys) == 1 or type(self).read_column is not DatasetIteratorIF.read_column or len(self) == 0:
            return [column_at(self, key, positions) for key in keys]
        if positions is None:
            positions = np.arange(len(self), dtype=np.intp)
        if type(self).read_batch is DatasetIteratorIF.read_batch and len(positions):
            samples = self.__getitems__(positions)  # and stack no column that is not wanted
            return [stack_values([value_of(sample, key) for sample in samples]) for key in keys]
        batch = batch_at(self, positions)
        if isinstance(batch, np.ndarray):
            return [column_at(self, key, positions) for key in keys]
        return [column_of(batch, key) for key in keys]

    def _has_fixed_columns(self) -> bool:
        """Whether the columns of a batch have one dtype and shape, whichever samples it has; False where nobody knows."""
        return False

    def _declared_columns(self) -> Mapping[str, DeclaredColumn] | None:
        """The columns of dict samples, where a schema says which there are; None where only a sample tells."""
        return None

    def _source_content(self) -> Any:
        """What differs where the samples of a source do, beside its class and :meth:`_arguments`: the digests of its files.

        A class without it is known by some of its samples, which tell no difference for sure.
        """
        return None

    def _arguments(self) -> dict[str, Any]:
        """What decides the samples besides the iterators below a layer, and the files of a source: what it was made with.

        Plain values, arrays, functions, encoders.
        """
        return {}

    def _stacked_on(self) -> list[DatasetIteratorIF]:
        """The iterators that this layer was made with."""
        return self.underlying_iterators

    @classmethod
    def _rebuilt(cls, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        """The layer of this class on ``underlying``, made with what :meth:`_arguments` gave."""
        return cls(*underlying, **arguments)

    def _followed(self, meta: DatasetMetaIF) -> DatasetMetaIF:
        """The meta of this layer's samples, where ``meta`` is that of what it is stacked on (of the first, if of several)."""
        return meta


class DatasetIterator(DatasetIteratorIF):
    """A source of samples: stacked on nothing, unless a subclass says otherwise."""

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """Empty."""
        return []


class InformedDatasetIteratorIF(DatasetIteratorIF):
    """Samples that know which dataset they are of."""

    @property
    def dataset_meta(self) -> DatasetMetaIF:
        """Name, tag and identifier of the dataset, and where in a sample the target is."""
        raise NotImplementedError

    def _stacked(self, layer: str, *others: DatasetIteratorIF, **arguments: Any) -> DatasetIteratorIF:
        # Positions are what layers, their recipes and what follows of a meta go by.
        arguments = {name: _with_positions(self, name, value) for name, value in arguments.items()}
        stacked = super()._stacked(layer, *others, **arguments)
        meta = MetaFactory.copy_dataset_meta(stacked._followed(self.dataset_meta))
        meta = replace(meta, provenance=(*meta.provenance, stacked._layer_name or type(stacked).__name__))
        return LAYERS["informed"]._rebuilt([stacked], {"dataset_meta": meta})

    def _class_column(self, by: ColumnKey | None) -> ColumnKey:
        return super()._class_column(None if by is None else column_key(self, by))

    def __repr__(self) -> str:
        try:
            meta = self.dataset_meta
            names = None if _is_mapped(meta) else getattr(meta, "column_names", None)  # a map may have changed them
            columns = f", columns {', '.join(names)}" if names else ""
            return super().__repr__().replace(">", f" of {meta.identifier!r}{columns}>")
        except Exception:  # noqa: BLE001  # as above
            return super().__repr__()


def column_names(iterator: Any) -> tuple[str, ...]:
    """The names of the columns of tuple samples, by the iterator's meta; ``()`` if they have none.

    Above a map, which may change the columns, sample 0 is read: other than as many values as there are names have no names.
    """
    if not isinstance(iterator, InformedDatasetIteratorIF):
        return ()
    meta = iterator.dataset_meta
    names = getattr(meta, "column_names", None) or ()
    if names and _is_mapped(meta) and len(iterator):
        sample = iterator[0]
        return names if isinstance(sample, (tuple, list)) and len(sample) == len(names) else ()
    return names


def column_key(iterator: Any, key: ColumnKey) -> ColumnKey:
    """``key``, or the position of the column that the meta of ``iterator`` calls so.

    Raises:
        ConfigError: its columns have names, and this is none of them.
    """
    if not isinstance(key, str):
        return key
    names = column_names(iterator)
    if names and key not in names:
        raise ConfigError(f"samples have no column {key!r}: they have the columns {', '.join(map(repr, names))}")
    return names.index(key) if names else key


def _is_mapped(meta: Any) -> bool:
    return "mapped" in getattr(meta, "provenance", ())


def _with_positions(iterator: Any, argument: str, value: Any) -> Any:
    """An argument of a layer with positions for the names of columns."""
    if argument in ("column", "columns", "by", "order_by", "group_by", "stratify", "time"):
        if isinstance(value, (list, tuple)):
            return [column_key(iterator, key) for key in value]
        return column_key(iterator, value)
    if argument == "names" and value == []:
        return list(column_names(iterator))
    if argument == "encoders" and isinstance(value, Mapping):
        return column_keys(iterator, value)
    if argument == "offsets" and isinstance(value, Mapping):
        return {at: keys and [column_key(iterator, key) for key in keys] for at, keys in value.items()}
    return value


def column_keys(iterator: Any, values: Mapping[ColumnKey, _Value]) -> dict[ColumnKey, _Value]:
    """A mapping by columns with positions for their names.

    Raises:
        ConfigError: as :func:`column_key`; or a column is there by its name and by its position.
    """
    keyed = {column_key(iterator, key): value for key, value in values.items()}
    if len(keyed) < len(values):
        raise ConfigError(f"a column is named twice, by its name and by its position, among {', '.join(map(repr, values))}")
    return keyed


class Indexable(Protocol):
    """Whatever has a number of samples and one at each index: a list, an array, a map-style dataset of another library."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class _AdaptedIterator(DatasetIterator):
    """Gives whatever has ``len`` and ``[i]``, such as a list or a torch dataset, the methods of the contract."""

    def __init__(self, samples: Any) -> None:
        self._adapted_samples = samples

    def __len__(self) -> int:
        return len(self._adapted_samples)

    def __getitem__(self, index: int) -> Sample:
        return self._adapted_samples[index]


def adapted(samples: Any) -> DatasetIteratorIF:
    """``samples`` itself if it is an iterator of ours, otherwise behind the contract; nothing is read.

    Raises:
        ConfigError: it is nothing that has samples, or a list or dict of iterators where one is meant.
    """
    if isinstance(samples, DatasetIteratorIF):
        return samples
    if not (hasattr(samples, "__len__") and hasattr(samples, "__getitem__")):
        raise ConfigError(f"samples come from an iterator, or whatever has len() and [i], not from {samples!r:.80}")
    if isinstance(samples, Mapping):
        if any(isinstance(part, DatasetIteratorIF) for part in samples.values()):
            raise ConfigError(f"a dict of iterators is no iterator: choose one of {', '.join(map(repr, samples))}")
        if samples and 0 not in samples:
            raise _no_samples(samples)
    elif hasattr(samples, "columns") and (hasattr(samples, "iloc") or hasattr(samples, "column_names")):  # of pandas, of Arrow
        raise _no_samples(samples)
    elif isinstance(samples, (list, tuple)) and samples and isinstance(samples[0], DatasetIteratorIF):
        raise ConfigError("a list of iterators is no iterator: give them one by one, as in combine(*iterators)")
    return _AdaptedIterator(samples)


def _no_samples(columns: Any) -> ConfigError:
    return ConfigError(
        f"a {type(columns).__name__} of columns is no iterator: its [0] is no sample. Make one of the columns: "
        f"SequenceDatasetIterator([columns[name] for name in names]).as_dict(*names)"
    )


def batch_at(iterator: DatasetIteratorIF, positions: IndexArrayOfInts) -> Batch:
    """``iterator.read_batch`` for positions of an integer array, each known to be in ``[0, len(iterator))``."""
    return iterator._batch_at(positions) if "_batch_at" in iterator._shortcuts else iterator.read_batch(positions)


def column_at(iterator: DatasetIteratorIF, key: ColumnKey, positions: IndexArrayOfInts | None) -> Column:
    """``iterator.read_column``, likewise; None: all positions."""
    return iterator._column_at(key, positions) if "_column_at" in iterator._shortcuts else iterator.read_column(key, positions)


def columns_at(iterator: DatasetIteratorIF, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None) -> list[Column]:
    """Several columns, likewise, in one request where that is possible."""
    if "_columns_at" in iterator._shortcuts:
        return iterator._columns_at(keys, positions)
    return DatasetIteratorIF._columns_at(iterator, keys, positions)


def declared_columns(iterator: DatasetIteratorIF) -> Mapping[str, DeclaredColumn] | None:
    """The columns of dict samples, as the schema of what they are read from declares them; None where only a sample tells."""
    source, _ = iterator._located()
    return source._declared_columns() if "_declared_columns" in source._shortcuts else None


def has_fixed_columns(iterator: DatasetIteratorIF) -> bool:
    """Whether the columns of a batch of it have one dtype and shape, whichever samples it has; False where nobody knows."""
    return "_has_fixed_columns" in iterator._shortcuts and iterator._has_fixed_columns()


def whole(iterator: DatasetIteratorIF, n_samples: int) -> IndexArrayOfInts | None:
    """What :func:`column_at` is asked for all of ``n_samples``: None, unless ``iterator`` has grown since they were counted."""
    return None if len(iterator) == n_samples else np.arange(n_samples, dtype=np.intp)


def checked_index(index: SupportsIndex, length: int) -> int:
    """The position ``0 <= p < length`` that ``index`` means, negative ones counted from the end.

    Raises:
        DatasetOutOfBoundsError: it lies outside.
        TypeError: it is no integer.
    """
    position = operator.index(index)
    if -length <= position < length:
        return position if position >= 0 else position + length
    raise out_of_bounds(position, length)


def checked_indices(indices: IndexArray | npt.ArrayLike, length: int) -> npt.NDArray[np.intp]:
    """The positions that ``indices`` mean in ``length`` samples: shape ``(n,)``, each in ``[0, length)``.

    Args:
        indices: integers (a list, range, numpy array or tensor), one bool for each sample, or a slice. An array that
            needs no conversion is returned as it is, not copied.
        length: number of samples.

    Raises:
        DatasetOutOfBoundsError: a position lies outside, or there is not one bool for each sample.
        TypeError: not a one-dimensional array of integers or bools.
    """
    if isinstance(indices, slice):
        return np.arange(*indices.indices(length), dtype=np.intp)
    try:
        array = np.asarray(indices)
    except ValueError as error:  # a list of lists of different lengths
        raise TypeError(f"indices must be a one-dimensional list or array of integers, got {indices!r:.80}") from error
    if array.dtype == object and array.ndim == 1 and len(array) and all(isinstance(each, (bool, np.bool_)) for each in array):
        array = array.astype(bool)  # a mask of pandas, which would otherwise be read as the positions 0 and 1
    if array.dtype == object and array.ndim == 1:
        integers = [_integer_at(place, index) for place, index in enumerate(array)]
        try:
            array = np.array(integers, dtype=np.intp)
        except OverflowError:  # larger than any iterator
            raise out_of_bounds(max(integers, key=abs), length) from None
    if array.ndim != 1:
        raise TypeError(f"indices must be a one-dimensional list or array of integers, got {_described(indices, array)}")
    if array.dtype == bool:
        if array.size != length:
            raise DatasetOutOfBoundsError(f"a mask of {array.size} values cannot select from an iterator of {length} samples")
        return np.flatnonzero(array)
    if array.size == 0:  # numpy makes floats of an empty list
        return np.empty(0, dtype=np.intp)
    if array.dtype.kind not in "iu":
        raise TypeError(f"indices must be integers or bools, got {_described(indices, array)}")
    lowest, highest = int(array.min()), int(array.max())  # before the cast, which would wrap large unsigned integers
    if lowest < -length or highest >= length:
        offender = lowest if lowest < -length else highest
        raise out_of_bounds(offender, length, place=int((array == offender).argmax()))
    positions = array.astype(np.intp, copy=False)
    return np.where(positions < 0, positions + length, positions) if lowest < 0 else positions


def checked_positions(indices: IndexArray | npt.ArrayLike, length: int) -> range | IndexArrayOfInts:
    """As :func:`checked_indices`, to be kept: a slice or range stays a range, anything else is copied, as narrow as it can be.

    Raises:
        DatasetOutOfBoundsError, TypeError: as there.
    """
    if isinstance(indices, slice):
        picked = range(length)[indices]
        return picked if len(picked) > 1 else range(picked.start, picked.start + len(picked))  # their step may be any integer
    if isinstance(indices, range):
        if len(indices) == 0:
            return range(0)
        lowest, highest = sorted((indices[0], indices[-1]))
        if lowest < -length or highest >= length:
            raise out_of_bounds(lowest if lowest < -length else highest, length)
        if len(indices) == 1:
            return range(lowest % length, lowest % length + 1)
        if lowest >= 0:
            return indices
        if highest < 0:
            return range(indices.start + length, indices.stop + length, indices.step)
    return narrowed(checked_indices(indices, length), length)


def checked_integer(name: str, value: Any, *, at_least: int | None = None, at_most: int | None = None) -> int:
    """``value`` as a plain int, for arguments such as counts and seeds.

    Raises:
        ConfigError: it is no integer (of Python or numpy), or out of range.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ConfigError(f"{name} must be an integer, got {value!r:.80}") from None
    if at_least is not None and number < at_least:
        raise ConfigError(f"{name} must be at least {at_least}, got {number}")
    if at_most is not None and number > at_most:
        raise ConfigError(f"{name} must be at most {at_most}, got {number}")
    return number


def out_of_bounds(position: int, length: int, place: int | None = None) -> DatasetOutOfBoundsError:
    """What to raise for a position that lies outside of ``length`` samples; ``place``: where it stands among several."""
    allowed = f"allowed are {-length} to {length - 1}" if length else "it is empty"
    # Python refuses to write out numbers of more than 4,300 digits
    shown = str(position) if abs(position) < 2**128 else f"of {position.bit_length():,} bits"
    where = "" if place is None else f", number {place} of the indices"
    return DatasetOutOfBoundsError(f"position {shown} is outside of an iterator of {length} samples{where}: {allowed}")


def _integer_at(place: int, index: Any) -> int:
    try:
        return operator.index(index)
    except TypeError:
        raise TypeError(f"indices must be integers or bools; number {place} of them is {index!r:.80}") from None


def _described(indices: object, array: npt.NDArray[Any]) -> str:
    return f"{type(indices).__name__} of shape {array.shape} and dtype {array.dtype}"
