"""The contract of iterators: random access to samples, batches and columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, overload

from data_stack.dataset.iterator.access import ColumnKey as ColumnKey
from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.access_of_iterator import (
    READING_METHODS,
    access_to,
    own_access,
    public_methods,
)
from data_stack.dataset.iterator.fluent import FluentIterator
from data_stack.dataset.iterator.names_of_others import METHODS, missing_attribute
from data_stack.dataset.meta import (
    DatasetMeta,
    DatasetMetaIF,
    MetaFactory,
    column_key,
    column_key_by,
)
from data_stack.dataset.positions import IndexArray as IndexArray
from data_stack.dataset.positions import check_index, check_indices
from data_stack.util.functions import stopped_by
from data_stack.values.stacking import Batch as Batch
from data_stack.values.stacking import ColumnArray as ColumnArray

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    # The TypeVar of typing_extensions has a default. Without it each annotation would need a type.
    from typing_extensions import TypeVar

    from data_stack.dataset.randomness import Draw

    SampleT = TypeVar("SampleT", covariant=True, default=Any)
else:
    from typing import TypeVar

    SampleT = TypeVar("SampleT", covariant=True)

Sample = Any
"""What ``iterator[i]`` returns: a tuple such as ``(sample, target, tag)``, a dict, a bare value."""

#: The most layers that a meta lists. Of a higher stack it lists those at the top.
_MAX_LAYERS_IN_META = 100


class DatasetIteratorIF(
    FluentIterator["DatasetIteratorIF", "DatasetIteratorIF[SampleT]"], Generic[SampleT], ABC
):
    """Samples with a length and random access.

    Type checkers know the type of samples where it is stated,
    ``samples: DatasetIteratorIF[tuple[str, int]]``, and keep it in layers that do not change
    samples.

    A subclass defines ``__len__``, ``__getitem__`` for ints from 0 to ``len - 1``, and
    ``underlying_iterators``. It need not call ``super().__init__()``: this class has no state.
    Wrappers resolve negative, numpy and boolean indices before they call ``__getitem__``. A
    ``__getitem__`` that takes slices and index arrays, too, ends in
    :func:`data_stack.dataset.iterator.sample_or_view`.

    Where a subclass redefines only ``__getitem__`` or ``__len__``, the methods that it inherits
    call these. Faster inherited versions would return the samples of the parent, and are not used.
    """

    #: The public methods by which samples are read, while the inherited version of one of them
    #: runs, by the name of that one; by ``""`` for all other times. See ``access.public_methods``.
    _public_methods: ClassVar[Mapping[str, frozenset[str] | None]]

    #: What ``repr()`` says besides the number of samples.
    _repr_details: str = ""

    #: The access that :meth:`AccessedDatasetIterator.make_access` made.
    _sample_access: SampleAccess | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._public_methods = {
            called: public_methods(cls, called) for called in ("", *READING_METHODS)
        }

    # ------------------------------------------------------------------ what a subclass defines

    @abstractmethod
    def __len__(self) -> int:
        """Return the exact number of samples, without reading them."""

    @abstractmethod
    def __getitem__(self, index: Any) -> Any:
        """Return the sample at an int position.

        Iterators of data_stack also return a view for a slice or an index array.

        Raises:
            DatasetOutOfBoundsError: the position lies outside. The error is an IndexError.
        """

    @property
    @abstractmethod
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterators that this one is stacked on; empty at a source."""

    # ------------------------------------------------------------------ samples

    def __iter__(self) -> Iterator[SampleT]:
        access = access_to(self, "__iter__")
        return access.iterate(0, access.n_samples)

    def __reversed__(self) -> Iterator[SampleT]:
        # Without it, reversed() would take an IndexError of a function for the end of the samples.
        for position in range(len(self) - 1, -1, -1):
            yield self[position]

    def __getitems__(self, indices: IndexArray) -> list[SampleT]:
        """Read the samples at ``indices``, in that order (PyTorch's protocol for fetching a batch).

        Raises:
            DatasetOutOfBoundsError: one of the positions lies outside.
        """
        access = access_to(self, "__getitems__")
        positions = check_indices(indices, access.n_samples)
        try:
            return access.samples(positions)
        except StopIteration as error:
            raise stopped_by(type(self).__getitems__) from error

    def read_batch(self, indices: IndexArray) -> Batch:
        """Read the samples at ``indices`` as stacked columns of shape ``(len(indices), ...)``.

        Tuple (and list) samples become a tuple of arrays, dict samples a dict of arrays, bare
        samples one array. Values that have no common shape, strings, bytes and other objects become
        an object array; a source with numpy's own arrays of strings returns these. Tensors become
        numpy arrays. Without indices, the columns are empty, with the dtype and shape of sample 0;
        the batch of an empty iterator is ``()``.

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

    def read_column(self, key: ColumnKey, indices: IndexArray | None = None) -> ColumnArray:
        """Read one column of the samples at ``indices`` (None: of all), shape ``(n, ...)``.

        The values are stacked as in :meth:`read_batch`. The array may share its memory with the
        iterator: do not write into it.

        Raises:
            DatasetOutOfBoundsError: one of the positions lies outside.
            ConfigError: the samples have no such column.
        """
        access = access_to(self, "read_column")
        positions = None
        if indices is not None:
            positions = check_indices(indices, access.n_samples)
        try:
            (column,) = access.columns([self._column_key(key)], positions)
        except StopIteration as error:
            raise stopped_by(type(self).read_column) from error
        return column

    # ------------------------------------------------------------------ representations

    def __repr__(self) -> str:
        try:
            n_samples = f"{len(self):,} samples"
        except Exception:  # noqa: BLE001  # a broken iterator still has a repr
            n_samples = "unknown length"
        return f"<{type(self).__name__}: {n_samples}{self._repr_details}>"

    def __str__(self) -> str:
        # A client's class with a repr of its own prints as that.
        our_reprs = (DatasetIteratorIF.__repr__, InformedDatasetIteratorIF.__repr__)
        if type(self).__repr__ not in our_reprs:
            return repr(self)
        return super().__str__()

    # ------------------------------------------------------------------ what a layer is

    if TYPE_CHECKING:
        # FluentIterator returns Any here, as its methods have several types. Here one is known.
        def _stack_layer(
            self, layer: type[Any], *others: Any, **arguments: Any
        ) -> DatasetIteratorIF: ...

    #: The name of the class in a recipe, see :func:`~data_stack.dataset.iterator.layer.layer`.
    _layer_name: ClassVar[str | None] = None

    #: The constructor's arguments that name columns.
    _column_arguments: ClassVar[frozenset[str]] = frozenset()

    #: The constructor's arguments that decide the samples: plain values, arrays, functions,
    #: encoders; no iterators.
    _made_with: Mapping[str, Any] = MappingProxyType({})

    #: What decides the random numbers of this layer; None where nothing is random.
    _draw: Draw | None = None

    def _arguments(self) -> dict[str, Any]:
        """Return what a recipe has of this layer besides the iterators below."""
        return dict(self._made_with)

    def _iterators_below(self) -> list[DatasetIteratorIF]:
        """Return the iterators that this layer was made with."""
        return self.underlying_iterators

    @classmethod
    def _from_arguments(
        cls, underlying: list[Any], arguments: Mapping[str, Any]
    ) -> DatasetIteratorIF:
        """Make this layer on ``underlying``, with arguments as :meth:`_arguments` returns them."""
        return cls(*underlying, **arguments)

    def _redraw(self, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        """Make this layer for another epoch.

        A layer that read samples when it was made need not read them again if ``underlying`` are
        the iterators that it was made on.
        """
        return self._from_arguments(underlying, arguments)

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMetaIF:
        """Return the meta of this layer's samples.

        Args:
            meta: the meta of the iterator that the layer is stacked on; of several iterators, that
                of the first.
        """
        return meta

    def _column_key(self, key: ColumnKey) -> ColumnKey:
        """Return the position of the column that ``key`` names by its meta; otherwise ``key``."""
        return key


class DatasetIterator(DatasetIteratorIF):
    """A source of samples: stacked on nothing, unless a subclass says otherwise."""

    #: The iterators that this one is stacked on.
    _stacked_on: Sequence[DatasetIteratorIF] = ()

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterators that this one is stacked on; none of a source."""
        return list(self._stacked_on)


@dataclass(frozen=True, slots=True)
class _SampleReader:
    """What ``iterator[position]`` reads through.

    Attributes:
        access: tells how many samples there are.
        read: reads the sample at a position of ``access``.
    """

    access: SampleAccess
    read: Callable[[int], Any]


class AccessedDatasetIterator(DatasetIterator):
    """An iterator whose methods all read through one :class:`SampleAccess`.

    A subclass defines :meth:`make_access`, and ``underlying_iterators`` if it is stacked on
    something.
    """

    #: Whether the iterator keeps its access; False where the access refers to the iterator.
    _keeps_access: ClassVar[bool] = True

    #: What reads one sample; None until the first is read, or where the access is not kept.
    _sample_reader: _SampleReader | None = None

    if not TYPE_CHECKING:  # a type checker is not to believe in every name

        def __getattr__(self, name: str) -> Any:
            """Say what a method of another library is called here."""
            if name in METHODS:
                raise missing_attribute(self, name)
            # Raises the error as it was: a property of a subclass may lack an attribute inside.
            return object.__getattribute__(self, name)

    @abstractmethod
    def make_access(self) -> SampleAccess:
        """Make the access to the samples; called on first use, and again in another process.

        Where a subclass redefines ``__getitem__``, ``read_batch`` and the like, these are called
        instead.
        """

    def __len__(self) -> int:
        return own_access(self).n_samples

    def __getitem__(self, index: Any) -> Any:
        """Return a sample for an int, a view for a slice or an index array."""
        if type(index) is int:
            # Reading one attribute of ``self`` costs a sixth of this method, due to __getattr__.
            reader = self._sample_reader or self._find_sample_reader()
            if 0 <= index < reader.access.n_samples:
                try:
                    return reader.read(index)
                except StopIteration as error:  # of the program, such as a column of its own
                    raise stopped_by(type(self).__getitem__) from error
        return sample_or_view(self, index)

    def _find_sample_reader(self) -> _SampleReader:
        """Return what reads one sample; it is kept if the access is."""
        access = own_access(self)
        if not self._keeps_access:
            return _SampleReader(access, access.sample)
        self._sample_reader = _SampleReader(access, access.make_sample_reader())
        return self._sample_reader

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.pop("_sample_access", None)
        state.pop("_sample_reader", None)
        return state


class _InformedMethods(
    FluentIterator["InformedDatasetIteratorIF", "InformedDatasetIteratorIF[SampleT]"],
    Generic[SampleT],
):
    """Tells type checkers that layers on an iterator with meta have meta.

    It is a class of its own, because a class cannot have ``FluentIterator`` as a base before
    ``DatasetIteratorIF``, which has it as a base too.
    """

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, index: int | np.integer[Any]) -> SampleT: ...
        @overload
        def __getitem__(
            self, index: slice | Sequence[Any] | npt.NDArray[Any]
        ) -> InformedDatasetIteratorIF[SampleT]: ...
        def __getitem__(self, index: Any) -> Any: ...


class InformedDatasetIteratorIF(_InformedMethods[SampleT], DatasetIteratorIF[SampleT]):
    """Samples with a meta, which says which dataset they are of."""

    @property
    def dataset_meta(self) -> DatasetMetaIF:
        """The name, tag and identifier of the dataset, and where in a sample the target is."""
        raise NotImplementedError

    def _stack_layer(self, layer: type[Any], *others: Any, **arguments: Any) -> DatasetIteratorIF:
        # Layers, recipes and metas refer to columns by position, not by name.
        for name in layer._column_arguments.intersection(arguments):
            arguments[name] = column_key(self, arguments[name])
        stacked = super()._stack_layer(layer, *others, **arguments)
        # A client's meta need not have all attributes; a copy has.
        own_meta = MetaFactory.copy_dataset_meta(self.dataset_meta)
        meta = MetaFactory.copy_dataset_meta(stacked._derive_meta(own_meta))
        layer_name = stacked._layer_name or type(stacked).__name__
        layers = (*meta.provenance, layer_name)
        meta = replace(meta, provenance=layers[-_MAX_LAYERS_IN_META:])
        informed: DatasetIteratorIF = stacked._with_meta(meta)
        return informed

    def _column_key(self, key: ColumnKey) -> ColumnKey:
        if not isinstance(key, str):
            return key
        return column_key_by(self.dataset_meta, access_to(self), key)

    def __repr__(self) -> str:
        text = super().__repr__()
        try:
            meta = self.dataset_meta
            dataset = "" if meta.identifier is None else f" of {meta.identifier!r}"
            names = getattr(meta, "column_names", None)
            columns = f", columns {', '.join(names)}" if names else ""
        except Exception:  # noqa: BLE001  # an iterator with a broken meta still has a repr
            return text
        return f"{text.removesuffix('>')}{dataset}{columns}>"


def sample_or_view(iterator: DatasetIteratorIF, index: Any) -> Any:
    """Return ``iterator[index]`` for any index.

    A ``__getitem__`` calls this function where ``index`` is not an int in ``[0, len(iterator))``.
    It is called again, with such an int, for an integer of another kind (negative, numpy, 0-d
    array).

    Args:
        iterator: the iterator.
        index: an integer, a slice, a list, an index array or a mask.

    Returns:
        A sample for an integer, otherwise a view.

    Raises:
        DatasetOutOfBoundsError: a position lies outside.
        TypeError: ``index`` is none of these.
    """
    n_dimensions = getattr(index, "ndim", 0)
    if n_dimensions == 0 and hasattr(index, "__index__"):
        return iterator[check_index(index, len(iterator))]
    if n_dimensions == 1 or isinstance(index, (slice, list, range)):
        return iterator._view(index)
    raise TypeError(
        f"indices must be integers, slices, or lists or arrays of integers, "
        f"not {index!r:.80}{_advise_column(index)}"
    )


def _advise_column(index: Any) -> str:
    """Return how to read a column, for an index that looks like the name of one."""
    if isinstance(index, str):
        return f"; to read a column, use read_column({index!r:.80})"
    if isinstance(index, tuple):
        return "; to read columns, use select(…) or read_column(…)"
    return ""
