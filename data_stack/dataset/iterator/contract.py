"""The contract that everything which gives samples fulfils: random access, batches, columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, overload

from data_stack.dataset.iterator.access import SampleAccess, Ways, access_to, brought_access, default_access
from data_stack.dataset.iterator.deep_stacks import reduce_stack
from data_stack.dataset.iterator.fluent import ColumnKey, FluentIterator
from data_stack.dataset.iterator.indices import IndexArray, check_index, check_indices
from data_stack.dataset.iterator.type_variables import IteratorT, SampleT
from data_stack.dataset.meta import DatasetMetaIF, MetaFactory
from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean
from data_stack.values.stacking import Batch, Column

__all__ = [
    "AccessedDatasetIterator",
    "Batch",
    "Column",
    "ColumnKey",
    "DatasetIterator",
    "DatasetIteratorIF",
    "Fold",
    "IndexArray",
    "Indexable",
    "InformedDatasetIteratorIF",
    "LayerDatasetIterator",
    "Sample",
    "as_iterator",
    "column_key",
    "column_key_by",
    "column_keys",
    "column_names",
    "sample_or_view",
]

_Value = TypeVar("_Value")

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_MOST_LAYERS_TOLD = 100

LOST_NAMES = (
    "a map of whole samples may move its columns, so they lose their names. Declare those of the new samples, "
    "map(function, columns=[…]), or map one column, map(function, column=…), which keeps all names"
)
"""Why the columns above a map have no names, and what to do."""

Sample = Any
"""What ``iterator[i]`` gives: a tuple ``(sample, target, tag)``, a dict of fields, or a bare value."""


class DatasetIteratorIF(FluentIterator["DatasetIteratorIF", "Fold", "DatasetIteratorIF[SampleT]"], Generic[SampleT], ABC):
    """Samples with a length and random access.

    Type checkers know the type of samples where it is stated, ``samples: DatasetIteratorIF[tuple[str, int]]``, and keep it in
    layers that do not change samples.

    A subclass defines ``__len__``, ``__getitem__`` for ints from 0 to ``len - 1``, and ``underlying_iterators``. It
    need not call ``super().__init__()``: this class has no state. Wrappers resolve negative, numpy and boolean indices
    before they call ``__getitem__``. To support slices and index arrays itself, ``__getitem__`` ends in
    :func:`data_stack.dataset.iterator.sample_or_view`.

    Where a subclass redefines ``__getitem__`` or ``__len__`` only, the other methods use these again, not the parent's faster
    versions, which would return the parent's samples.
    """

    _sample_ways: ClassVar[Ways]
    """Which methods read samples of exactly this class."""

    _noted: str = ""
    """What a representation says besides the number of samples."""

    _sample_access: SampleAccess | None = None
    """The access that :meth:`AccessedDatasetIterator.make_access` made."""

    if TYPE_CHECKING:

        def _stack_layer(self, layer: type[Any], *others: Any, **arguments: Any) -> DatasetIteratorIF: ...

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._sample_ways = Ways.of(cls)

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples, exact, known without reading them."""

    @abstractmethod
    def __getitem__(self, index: Any) -> Any:
        """The sample at an int position; iterators of data_stack also give a view for a slice or an index array.

        Raises:
            DatasetOutOfBoundsError: the position lies outside; it is an IndexError.
        """

    @property
    @abstractmethod
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterators that this one is stacked on; empty at a source."""

    def __repr__(self) -> str:
        try:
            n_samples = f"{len(self):,} samples"
        except Exception:  # noqa: BLE001  # a broken iterator still has a repr
            n_samples = "unknown length"
        return f"<{type(self).__name__}: {n_samples}{self._noted}>"

    def __str__(self) -> str:
        # A class with a repr of its own prints as before.
        is_own = type(self).__repr__ not in (DatasetIteratorIF.__repr__, InformedDatasetIteratorIF.__repr__)
        return repr(self) if is_own else super().__str__()

    def __iter__(self) -> Iterator[SampleT]:
        return default_access(self, "__iter__").iterate(0, len(self))

    def __getitems__(self, indices: IndexArray) -> list[SampleT]:
        """The samples at ``indices``, in that order (PyTorch's protocol for fetching a batch).

        Raises:
            DatasetOutOfBoundsError: one of the positions lies outside.
        """
        return default_access(self, "__getitems__").samples(check_indices(indices, len(self)))

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
        access = default_access(self, "read_batch")
        return access.batch(check_indices(indices, access.n_samples))

    def read_column(self, key: ColumnKey, indices: IndexArray | None = None) -> Column:
        """One column of the samples at ``indices`` (None: of all), shape ``(n, ...)``, stacked as in :meth:`read_batch`.

        The array may share its memory with the iterator: do not write into it.

        Raises:
            DatasetOutOfBoundsError: one of the positions lies outside.
            ConfigError: the samples have no such column.
        """
        positions = None if indices is None else check_indices(indices, len(self))
        (column,) = default_access(self, "read_column").columns([self._column_key(key)], positions)
        return column

    # ------------------------------------------------------------------ what a layer is

    _layer_name: ClassVar[str | None] = None
    """Stands for the class in a recipe, see :func:`~data_stack.dataset.iterator.registry.layer`."""

    def _column_key(self, key: ColumnKey) -> ColumnKey:
        """``key``, or the position of the column that it names."""
        return key

    _made_with: Mapping[str, Any] = MappingProxyType({})
    """The constructor's arguments that decide the samples: plain values, arrays, functions, encoders; no iterators."""

    _takes_list: ClassVar[bool] = False
    """Whether the constructor takes a list of iterators."""

    def _arguments(self) -> dict[str, Any]:
        """What a recipe has of this layer besides the iterators below."""
        return dict(self._made_with)

    def _stack_on(self) -> list[DatasetIteratorIF]:
        """The iterators that this layer was made with."""
        return self.underlying_iterators

    @classmethod
    def _rebuilt(cls, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        """Make this layer on ``underlying`` with arguments from :meth:`_arguments`."""
        made_of: Any = cls
        made: DatasetIteratorIF = made_of(underlying, **arguments) if cls._takes_list else made_of(*underlying, **arguments)
        return made

    def _derive_meta(self, meta: DatasetMetaIF) -> DatasetMetaIF:
        """The meta of this layer's samples, where ``meta`` is that of what it is stacked on (of the first, if of several)."""
        return meta


@dataclass(frozen=True)
class Fold(Generic[IteratorT]):
    """One round of cross validation: ``train, test = fold``.

    Attributes:
        train: the samples of all other folds.
        test: the samples of this fold; each sample is in the test part of exactly one fold.
        number: which of the folds.
    """

    train: IteratorT
    test: IteratorT
    number: int = 0

    def __iter__(self) -> Iterator[IteratorT]:
        return iter((self.train, self.test))


class DatasetIterator(DatasetIteratorIF):
    """A source of samples: stacked on nothing, unless a subclass says otherwise."""

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """Empty."""
        return []


class AccessedDatasetIterator(DatasetIterator):
    """An iterator whose methods all read through one :class:`SampleAccess`.

    A subclass defines :meth:`make_access`, and ``underlying_iterators`` if it is stacked on something.
    """

    _keeps_access: ClassVar[bool] = True
    """Whether the iterator keeps its access; False where the access refers to the iterator."""

    @abstractmethod
    def make_access(self) -> SampleAccess:
        """Make the access to the samples; called on first use, and again in another process.

        Where a subclass redefines ``__getitem__``, ``read_batch`` and the like, these are called instead.
        """

    def __len__(self) -> int:
        return brought_access(self).n_samples

    def __getitem__(self, index: Any) -> Any:
        """A sample for an int; a view for a slice or an index array."""
        if type(index) is int:
            access = self._sample_access or brought_access(self)
            if 0 <= index < access.n_samples:
                return access.sample(index)
        return sample_or_view(self, index)

    __reduce_ex__ = reduce_stack

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_sample_access"}


class LayerDatasetIterator(AccessedDatasetIterator):
    """A layer on one iterator.

    Args:
        dataset_iterator: what lies below; it stays the caller's to close.
        made_with: the other arguments of the layer, for recipes.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, **made_with: Any) -> None:
        as_iterator(dataset_iterator)  # refuses what has no samples
        self._dataset_iterator, self._made_with = dataset_iterator, made_with

    def _below(self) -> SampleAccess:
        return access_to(as_iterator(self._dataset_iterator))

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator that the layer is stacked on."""
        return [self._dataset_iterator]


class _InformedMethods(
    FluentIterator["InformedDatasetIteratorIF", "Fold[InformedDatasetIteratorIF[SampleT]]", "InformedDatasetIteratorIF[SampleT]"],
    Generic[SampleT],
):
    """For type checkers: layers on an iterator with meta have meta."""

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, index: int | np.integer[Any]) -> SampleT: ...
        @overload
        def __getitem__(self, index: slice | Sequence[Any] | npt.NDArray[Any]) -> InformedDatasetIteratorIF[SampleT]: ...
        def __getitem__(self, index: Any) -> Any: ...


class InformedDatasetIteratorIF(_InformedMethods[SampleT], DatasetIteratorIF[SampleT]):
    """Samples that know which dataset they are of."""

    @property
    def dataset_meta(self) -> DatasetMetaIF:
        """Name, tag and identifier of the dataset, and where in a sample the target is."""
        raise NotImplementedError

    def _stack_layer(self, layer: type[Any], *others: Any, **arguments: Any) -> DatasetIteratorIF:
        # Layers, recipes and metas use positions, not names.
        arguments = {name: _with_positions(self, name, value) for name, value in arguments.items()}
        stacked = super()._stack_layer(layer, *others, **arguments)
        meta = MetaFactory.copy_dataset_meta(stacked._derive_meta(self.dataset_meta))
        layers = (*meta.provenance, stacked._layer_name or type(stacked).__name__)
        meta = replace(meta, provenance=layers[-_MOST_LAYERS_TOLD:])  # each meta has its own
        informed: DatasetIteratorIF = stacked._with_meta(meta)
        return informed

    def _class_column(self, by: ColumnKey | None) -> ColumnKey:
        return super()._class_column(None if by is None else column_key(self, by))

    def _column_key(self, key: ColumnKey) -> ColumnKey:
        return column_key(self, key)

    def __repr__(self) -> str:
        try:
            meta = self.dataset_meta
            names = getattr(meta, "column_names", None)
            columns = f", columns {', '.join(names)}" if names else ""
            dataset = "" if meta.identifier is None else f" of {meta.identifier!r}"
            return super().__repr__().replace(">", f"{dataset}{columns}>")
        except Exception:  # noqa: BLE001  # as above
            return super().__repr__()


def sample_or_view(iterator: DatasetIteratorIF, index: Any) -> Any:
    """``iterator[index]`` for any index; for ``__getitem__`` to call where ``index`` is not a plain position.

    An integer of any kind (negative, numpy, 0-d array) becomes ``iterator[p]`` with an int ``0 <= p < len(iterator)``;
    a slice, list, index array or mask becomes a view.

    Raises:
        DatasetOutOfBoundsError: a position lies outside.
        TypeError: ``index`` is none of these.
    """
    if getattr(index, "ndim", 0) == 0 and hasattr(index, "__index__"):
        return iterator[check_index(index, len(iterator))]
    if not isinstance(index, (slice, list, range)) and getattr(index, "ndim", 0) != 1:
        raise TypeError(f"a sample is found by an integer, a slice, or a list or array of integers, not by {index!r}")
    return iterator._view(index)


def column_names(iterator: Any) -> tuple[str, ...]:
    """The names of the columns of tuple samples, by the iterator's meta; ``()`` if they have none."""
    return _names_by(iterator.dataset_meta) or () if isinstance(iterator, InformedDatasetIteratorIF) else ()


def _names_by(meta: DatasetMetaIF) -> tuple[str, ...] | None:
    names: tuple[str, ...] | None = getattr(meta, "column_names", None)
    return names


def column_key(iterator: Any, key: ColumnKey) -> ColumnKey:
    """``key``, or the position of the column that the meta of ``iterator`` calls so.

    Raises:
        ConfigError: its columns have names, and ``key`` is not one of them; or a map of whole tuples lost the names.
    """
    if not isinstance(key, str) or not isinstance(iterator, InformedDatasetIteratorIF):
        return key
    return column_key_by(iterator.dataset_meta, access_to(iterator), key)


def column_key_by(meta: DatasetMetaIF, samples: SampleAccess, key: ColumnKey) -> ColumnKey:
    """As :func:`column_key`, for an access and its meta."""
    if not isinstance(key, str):
        return key
    names = _names_by(meta)
    if names == () and samples.n_samples and isinstance(samples.sample(0), (tuple, list)):
        raise ConfigError(f"samples have no column {key!r}: {LOST_NAMES}")
    if names and key not in names:
        raise ConfigError(
            f"samples have no column {key!r}{did_you_mean(key, names)}: they have the columns {', '.join(map(repr, names))}"
        )
    return names.index(key) if names else key


def _with_positions(iterator: Any, argument: str, value: Any) -> Any:
    """An argument of a layer, with names of columns replaced by positions."""
    if argument in ("column", "columns", "by", "order_by", "group_by", "stratify", "time"):
        if isinstance(value, (list, tuple)):
            return [column_key(iterator, key) for key in value]
        return column_key(iterator, value)
    if argument == "names" and value == []:
        names = _names_by(iterator.dataset_meta)
        if names == ():
            raise ConfigError(f"the columns have no names: {LOST_NAMES}. Or give the names here: as_dict(…)")
        return list(names or ())
    if argument == "encoders" and isinstance(value, Mapping):
        return column_keys(iterator, value)
    if argument == "offsets" and isinstance(value, Mapping):
        return {at: keys and [column_key(iterator, key) for key in keys] for at, keys in value.items()}
    return value


def column_keys(iterator: Any, values: Mapping[ColumnKey, _Value]) -> dict[ColumnKey, _Value]:
    """A mapping by column, with names replaced by positions.

    Raises:
        ConfigError: as :func:`column_key`; or a column is given both by name and by position.
    """
    keyed = {column_key(iterator, key): value for key, value in values.items()}
    if len(keyed) < len(values):
        raise ConfigError(f"a column is named twice, by its name and by its position, among {', '.join(map(repr, values))}")
    return keyed


class Indexable(Protocol):
    """An object with ``len`` and ``[i]``: a list, an array, a map-style dataset of another library."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class _AdaptedIterator(DatasetIterator):
    """Gives an object with ``len`` and ``[i]``, such as a list or a torch dataset, the methods of the contract."""

    def __init__(self, samples: Any) -> None:
        self._adapted_samples = samples

    def __len__(self) -> int:
        return len(self._adapted_samples)

    def __getitem__(self, index: int) -> Sample:
        return self._adapted_samples[index]


def as_iterator(samples: Any) -> DatasetIteratorIF:
    """``samples`` itself if it is a ``DatasetIteratorIF``, otherwise an iterator over it; nothing is read.

    Raises:
        ConfigError: it has no samples, or is a text, bytes, a dict, a table, or a list of iterators.
    """
    if isinstance(samples, DatasetIteratorIF):
        return samples
    kind = type(samples).__name__
    if isinstance(samples, str):
        raise ConfigError(
            f"expected an iterator, got the text {samples!r:.80}; load the dataset first: "
            f"data_stack.load({samples!r:.80}, split=…)"
        )
    if isinstance(samples, Mapping) and samples and all(isinstance(each, DatasetIteratorIF) for each in samples.values()):
        names = ", ".join(f"[{name!r}]" for name in samples)
        raise ConfigError(f"expected an iterator, got a dict of iterators; choose one of them: {names:.200}")
    # pandas, Arrow, polars
    is_of_columns = hasattr(samples, "columns") and any(hasattr(samples, name) for name in ("iloc", "column_names", "lazy"))
    if isinstance(samples, Mapping) or is_of_columns:
        remedy = "SequenceDatasetIterator([columns[name] for name in names]).as_dict(*names)"
        remedy = remedy if isinstance(samples, Mapping) else "data_stack.from_pandas(…), from_polars(…) or from_arrow(…)"
        raise ConfigError(
            f"expected an iterator, got {kind}, whose [0] is not a sample; make an iterator of its columns: {remedy}"
        )
    if isinstance(samples, (list, tuple)) and samples and isinstance(samples[0], DatasetIteratorIF):
        raise ConfigError("expected an iterator, got a list of iterators; give them one by one, as in combine(*iterators)")
    is_indexable = hasattr(samples, "__len__") and hasattr(samples, "__getitem__") and getattr(samples, "ndim", 1) != 0
    if not is_indexable or isinstance(samples, (bytes, bytearray, memoryview)):
        hint = "; collect its samples in a list" if isinstance(samples, Iterator) else ""
        raise ConfigError(
            f"expected an iterator, or an object with len() and [i] such as a list, got {kind} {samples!r:.80}{hint}"
        )
    return _AdaptedIterator(samples)
