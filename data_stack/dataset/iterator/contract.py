"""The contract of iterators: random access to samples, batches and columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, overload

from data_stack.dataset.iterator.access import (
    METHODS,
    SampleAccess,
    access_to,
    own_access,
    public_methods,
)
from data_stack.dataset.iterator.access import ColumnKey as ColumnKey
from data_stack.dataset.iterator.fluent import FluentIterator
from data_stack.dataset.meta import (
    DatasetMeta,
    DatasetMetaIF,
    MetaFactory,
    column_key,
    column_key_by,
)
from data_stack.dataset.positions import IndexArray as IndexArray
from data_stack.dataset.positions import check_index, check_indices
from data_stack.exception import ConfigError
from data_stack.util.functions import stopped_by
from data_stack.values.stacking import Batch as Batch
from data_stack.values.stacking import Column as Column

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    # typing_extensions' has a default, without which each annotation would need a type
    from typing_extensions import TypeVar

    from data_stack.dataset.randomness import Draw

    SampleT = TypeVar("SampleT", covariant=True, default=Any)
    IteratorT = TypeVar("IteratorT", covariant=True, default=Any)
else:
    from typing import TypeVar

    SampleT = TypeVar("SampleT", covariant=True)
    IteratorT = TypeVar("IteratorT", covariant=True)


Sample = Any
"""What ``iterator[i]`` returns: a tuple ``(sample, target, tag)``, a dict of fields, or a bare value."""


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


class DatasetIteratorIF(
    FluentIterator["DatasetIteratorIF", "Fold", "DatasetIteratorIF[SampleT]"], Generic[SampleT], ABC
):
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

    _public_methods: ClassVar[Mapping[str, frozenset[str] | None]]
    """See :func:`~data_stack.dataset.iterator.access.public_methods`, for each method that calls it."""

    _repr_details: str = ""
    """What a representation says besides the number of samples."""

    _sample_access: SampleAccess | None = None
    """The access that :meth:`AccessedDatasetIterator.make_access` made."""

    if TYPE_CHECKING:

        def _stack_layer(
            self, layer: type[Any], *others: Any, **arguments: Any
        ) -> DatasetIteratorIF: ...

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._public_methods = {called: public_methods(cls, called) for called in ("", *METHODS)}

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples, exact, known without reading them."""

    @abstractmethod
    def __getitem__(self, index: Any) -> Any:
        """The sample at an int position; iterators of data_stack also return a view for a slice or an index array.

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
        return f"<{type(self).__name__}: {n_samples}{self._repr_details}>"

    def __str__(self) -> str:
        # A class with a repr of its own prints as before.
        is_own = type(self).__repr__ not in (
            DatasetIteratorIF.__repr__,
            InformedDatasetIteratorIF.__repr__,
        )
        return repr(self) if is_own else super().__str__()

    def __iter__(self) -> Iterator[SampleT]:
        return access_to(self, "__iter__").iterate(0, len(self))

    def __reversed__(self) -> Iterator[SampleT]:
        # Without it, reversed() would take an IndexError of a function for the end of the samples.
        for position in range(len(self) - 1, -1, -1):
            yield self[position]

    def __getitems__(self, indices: IndexArray) -> list[SampleT]:
        """The samples at ``indices``, in that order (PyTorch's protocol for fetching a batch).

        Raises:
            DatasetOutOfBoundsError: one of the positions lies outside.
        """
        access = access_to(self, "__getitems__")
        positions = check_indices(indices, len(self))
        try:
            return access.samples(positions)
        except StopIteration as error:
            raise stopped_by(type(self).__getitems__) from error

    def read_batch(self, indices: IndexArray) -> Batch:
        """The samples at ``indices`` as stacked columns, each of shape ``(len(indices), ...)``.

        Tuple (and list) samples become a tuple of arrays, dict samples a dict of arrays, bare samples one array. Values
        that have no common shape, strings, bytes and other objects become an object array; a source with numpy's own arrays of
        strings returns these. Tensors arrive as numpy arrays.
        For no indices the columns are empty, with the dtype and shape of sample 0; of an empty iterator the batch is ``()``.

        Raises:
            DatasetOutOfBoundsError: one of the positions lies outside.
            ConfigError: the samples differ in their number of columns or in their keys.
        """
        access = access_to(self, "read_batch")
        positions = check_indices(indices, access.n_samples)
        try:
            return access.batch(positions)
        except StopIteration as error:
            raise stopped_by(type(self).read_batch) from error

    def read_column(self, key: ColumnKey, indices: IndexArray | None = None) -> Column:
        """One column of the samples at ``indices`` (None: of all), shape ``(n, ...)``, stacked as in :meth:`read_batch`.

        The array may share its memory with the iterator: do not write into it.

        Raises:
            DatasetOutOfBoundsError: one of the positions lies outside.
            ConfigError: the samples have no such column.
        """
        positions = None if indices is None else check_indices(indices, len(self))
        access = access_to(self, "read_column")
        try:
            (column,) = access.columns([self._column_key(key)], positions)
        except StopIteration as error:
            raise stopped_by(type(self).read_column) from error
        return column

    # ------------------------------------------------------------------ what a layer is

    _layer_name: ClassVar[str | None] = None
    """The name of the class in a recipe, see :func:`~data_stack.dataset.iterator.layer.layer`."""

    _column_arguments: ClassVar[frozenset[str]] = frozenset()
    """The constructor's arguments that name columns."""

    def _column_key(self, key: ColumnKey) -> ColumnKey:
        """``key``, or the position of the column that it names."""
        return key

    _made_with: Mapping[str, Any] = MappingProxyType({})
    """The constructor's arguments that decide the samples: plain values, arrays, functions, encoders; no iterators."""

    _draw: Draw | None = None
    """What decides the random numbers of this layer; None where nothing is random."""

    def _arguments(self) -> dict[str, Any]:
        """What a recipe has of this layer besides the iterators below."""
        return dict(self._made_with)

    def _iterators_below(self) -> list[DatasetIteratorIF]:
        """The iterators that this layer was made with."""
        return self.underlying_iterators

    @classmethod
    def _from_arguments(
        cls, underlying: list[Any], arguments: Mapping[str, Any]
    ) -> DatasetIteratorIF:
        """Make this layer on ``underlying`` with arguments from :meth:`_arguments`."""
        return cls(*underlying, **arguments)

    def _redraw(self, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        """Make this layer for another epoch; what it found when it was made may stay if ``underlying`` is what it was made on."""
        return self._from_arguments(underlying, arguments)

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMetaIF:
        """The meta of this layer's samples, where ``meta`` is that of what it is stacked on (of the first, if of several)."""
        return meta


class DatasetIterator(DatasetIteratorIF):
    """A source of samples: stacked on nothing, unless a subclass says otherwise."""

    _stacked_on: Sequence[DatasetIteratorIF] = ()

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterators that this one is stacked on; none of a source."""
        return list(self._stacked_on)


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
        return own_access(self).n_samples

    def __getitem__(self, index: Any) -> Any:
        """A sample for an int; a view for a slice or an index array."""
        if type(index) is int:
            access = self._sample_access or own_access(self)
            if 0 <= index < access.n_samples:
                try:
                    return access.sample(index)
                except StopIteration as error:  # of a class of the program, such as a column's
                    raise stopped_by(type(self).__getitem__) from error
        return sample_or_view(self, index)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_sample_access"}


class _InformedMethods(
    FluentIterator[
        "InformedDatasetIteratorIF",
        "Fold[InformedDatasetIteratorIF[SampleT]]",
        "InformedDatasetIteratorIF[SampleT]",
    ],
    Generic[SampleT],
):
    """For type checkers: layers on an iterator with meta have meta."""

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, index: int | np.integer[Any]) -> SampleT: ...
        @overload
        def __getitem__(
            self, index: slice | Sequence[Any] | npt.NDArray[Any]
        ) -> InformedDatasetIteratorIF[SampleT]: ...
        def __getitem__(self, index: Any) -> Any: ...


class InformedDatasetIteratorIF(_InformedMethods[SampleT], DatasetIteratorIF[SampleT]):
    """Samples that know which dataset they are of."""

    @property
    def dataset_meta(self) -> DatasetMetaIF:
        """Name, tag and identifier of the dataset, and where in a sample the target is."""
        raise NotImplementedError

    def _stack_layer(self, layer: type[Any], *others: Any, **arguments: Any) -> DatasetIteratorIF:
        for name in (
            layer._column_arguments & arguments.keys()
        ):  # layers, recipes and metas use positions, not names
            arguments[name] = column_key(self, arguments[name])
        stacked = super()._stack_layer(layer, *others, **arguments)
        known = MetaFactory.copy_dataset_meta(
            self.dataset_meta
        )  # a client's meta need not have all
        meta = MetaFactory.copy_dataset_meta(stacked._derive_meta(known))
        layers = (*meta.provenance, stacked._layer_name or type(stacked).__name__)
        return stacked._with_meta(replace(meta, provenance=layers[-100:]))  # type: ignore[no-any-return]  # each has its own

    def _column_key(self, key: ColumnKey) -> ColumnKey:
        return (
            column_key_by(self.dataset_meta, access_to(self), key) if isinstance(key, str) else key
        )

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
        raise TypeError(
            f"indices must be integers, slices, or lists or arrays of integers, not {index!r:.80}"
            f"{_advise_column(index)}"
        )
    return iterator._view(index)


def _advise_column(index: Any) -> str:
    """How to read a column, for an index that looks like the name of one."""
    if isinstance(index, str):
        return f"; to read a column, use read_column({index!r:.80})"
    if isinstance(index, tuple):
        return "; to read columns, use select(…) or read_column(…)"
    return ""


class Indexable(Protocol):
    """An object with ``len`` and ``[i]``: a list, an array, a map-style dataset of another library."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class AdaptedIterator(DatasetIterator):
    """Gives an object with ``len`` and ``[i]``, such as a list or a torch dataset, the methods of the contract."""

    def __init__(self, samples: Any) -> None:
        self.adapted_samples = samples

    def __len__(self) -> int:
        return len(self.adapted_samples)

    def __getitem__(self, index: int) -> Sample:
        try:
            return self.adapted_samples[index]
        except StopIteration as error:
            raise stopped_by(type(self.adapted_samples).__getitem__) from error


def as_iterator(samples: Any) -> DatasetIteratorIF:
    """``samples`` itself if it is a ``DatasetIteratorIF``, otherwise an iterator over it; nothing is read.

    Raises:
        ConfigError: it has no samples, or is a text, bytes, a dict, a table, or a list of iterators.
    """
    if isinstance(samples, DatasetIteratorIF):
        return samples
    # pandas, Arrow, polars
    is_of_columns = hasattr(samples, "columns") and any(
        hasattr(samples, name) for name in ("iloc", "column_names", "lazy")
    )
    is_indexable = (
        hasattr(samples, "__len__")
        and hasattr(samples, "__getitem__")
        and getattr(samples, "ndim", 1) != 0
    )
    is_list_of_iterators = (
        isinstance(samples, (list, tuple)) and samples and isinstance(samples[0], DatasetIteratorIF)
    )
    is_other = (
        is_of_columns
        or is_list_of_iterators
        or isinstance(samples, (str, bytes, bytearray, memoryview, Mapping))
    )
    if is_indexable and not is_other:
        return AdaptedIterator(samples)
    shown = type(samples).__name__ if is_of_columns else f"{type(samples).__name__} {samples!r:.80}"
    raise ConfigError(
        f"expected an iterator, or an object with len() and [i] such as a list, got {shown}. Load a dataset by load(), "
        f"choose one of several iterators, and make one of columns by from_numpy(), from_pandas() or from_arrow()"
    )
