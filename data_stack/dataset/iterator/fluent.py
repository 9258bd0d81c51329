"""Gives every iterator the methods that stack layers: ``iterator.shuffle(seed=1).take(100)``."""

# mypy: no-warn-return-any, no-warn-unused-ignores
# A layer is made by name, and a type checker cannot see that it has this iterator's kind and
# samples. Where a function of ours takes an iterator, ``self: Any`` stands for DatasetIteratorIF,
# whose module imports this one.

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from data_stack.dataset.class_lists import Classes, ClassesOfZip
from data_stack.dataset.iterator.access import ColumnKey
from data_stack.dataset.iterator.converted import ConvertedIterator
from data_stack.dataset.iterator.described import DescribedIterator
from data_stack.dataset.iterator.names_of_others import METHOD_ARGUMENTS
from data_stack.dataset.meta import DatasetMeta, DatasetMetaIF, column_key
from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError
from data_stack.util.unknown_arguments import explains_arguments

if TYPE_CHECKING:
    from datetime import timedelta

    import numpy as np
    import numpy.typing as npt

    from data_stack.dataset.encoders import ClassMapping, EncoderLike
    from data_stack.dataset.iterator.fold import Fold
    from data_stack.io.storage_connectors import StorageConnector

_Stack = TypeVar("_Stack")
_Same = TypeVar("_Same", covariant=True)

#: Seeds that are drawn are below this number, so that they are short where they are shown.
_MAX_DRAWN_SEED = 10**6


class FluentIterator(DescribedIterator, ConvertedIterator, Generic[_Stack, _Same]):
    """Methods that stack a layer on this iterator.

    A method reads no sample unless its documentation says so. Each layer is an iterator again. A
    layer on an iterator with meta has a meta too, without what is no longer true. A class that has
    an attribute of one of these names keeps it; data_stack itself does not call these methods.

    ``column`` and ``by`` name a column: by a position in tuple samples, by its name where the
    dataset declares ``columns``, or by a key of dict samples. ``by=None`` means the target. The
    target is where the meta says; without a meta it is column 1.

    All methods raise a ``ConfigError`` for an argument that is out of its range, and for a column
    that does not exist.

    The type parameter ``_Stack`` is an iterator with meta if this one has a meta. ``_Same`` is such
    an iterator whose samples are also of the same type.
    """

    # ------------------------------------------------------------------ which samples, which order

    def take(self, n_samples: int) -> _Same:
        """Return the first ``n_samples`` samples; all of them where there are fewer."""
        stop = check_integer("n_samples", n_samples, at_least=0)
        return self._view(slice(0, stop))

    def head(self, n_samples: int = 5) -> _Same:
        """Return the first few samples, as :meth:`take`."""
        return FluentIterator.take(self, n_samples)

    def skip(self, n_samples: int) -> _Same:
        """Return all but the first ``n_samples`` samples."""
        start = check_integer("n_samples", n_samples, at_least=0)
        return self._view(slice(start, None))

    @explains_arguments(METHOD_ARGUMENTS)
    def shuffle(self, seed: int | None = None, *, epoch: int = 0) -> _Same:
        """Return all samples in a random order.

        The order is computed: a large iterator needs no array of positions.

        Args:
            seed: any integer, which decides the order together with ``epoch``. None draws a seed,
                which :meth:`explain` shows. Processes that share the samples must pass the same
                seed.
            epoch: see :meth:`at_epoch`.
        """
        from data_stack.dataset.iterator.layers.shuffled import ShuffledDatasetIterator

        if seed is None:
            seed = secrets.randbelow(_MAX_DRAWN_SEED)
        return self._stack_layer(ShuffledDatasetIterator, seed=seed, epoch=epoch)

    def repeat(self, times: int) -> _Same:
        """Return all samples ``times`` times, one pass after the other."""
        from data_stack.dataset.iterator.layers.repeated import RepeatedDatasetIterator

        return self._stack_layer(RepeatedDatasetIterator, times=times)

    def combine(self, *others: FluentIterator[Any, Any], classes: Classes = "same") -> _Same:
        """Return these samples, then those of ``others``, one iterator after the other.

        Args:
            others: the other iterators.
            classes: ``"same"`` refuses iterators with different ``class_names``, as their labels
                mean different classes; ``"by name"`` gives each class one number: those of this
                iterator, then the new ones of the others.

        Raises:
            ConfigError: the lists of classes differ; or, by name, the classes of an iterator are
                unknown.
        """
        from data_stack.dataset.iterator.layers.combined import CombinedDatasetIterator

        first, *more = self._with_common_classes(others, classes)
        return first._stack_layer(CombinedDatasetIterator, *more)

    def interleave(
        self,
        *others: FluentIterator[Any, Any],
        stop: Literal["longest", "shortest"] = "longest",
        classes: Classes = "same",
    ) -> _Same:
        """Return one sample of each iterator in turn.

        Args:
            others: the other iterators.
            stop: ``"longest"`` until all are exhausted, ``"shortest"`` until the first one is.
            classes: as for :meth:`combine`.
        """
        from data_stack.dataset.iterator.layers.interleaved import InterleavedDatasetIterator

        first, *more = self._with_common_classes(others, classes)
        return first._stack_layer(InterleavedDatasetIterator, *more, stop=stop)

    def mix(
        self,
        *others: FluentIterator[Any, Any],
        proportions: Sequence[float] | Mapping[str, float] | None = None,
        seed: int,
        n_samples: int | None = None,
        epoch: int = 0,
        classes: Classes = "same",
        names: Sequence[str] | None = None,
        schedule: Sequence[tuple[int, Sequence[float] | Mapping[str, float]]] = (),
        temperature: float | None = None,
        max_epochs: int | Mapping[str, int] | None = None,
        consumed: Mapping[str, int] | None = None,
    ) -> _Same:
        """Return samples of several iterators, the sources, in stated proportions.

        The samples of each source are in a shuffled order of their own. A source that is exhausted
        starts again in another order. At every position the number of samples so far differs from
        the stated proportion by less than one block, see ``MixedDatasetIterator``.

        ::

            web.mix(
                code,
                names=["web", "code"],
                proportions={"web": 0.9, "code": 0.1},
                schedule=[(1_000_000, {"web": 0.5, "code": 0.5})],
                n_samples=2_000_000,
                seed=1,
            )

        Args:
            others: the other sources.
            proportions: one number for each source, this one first, or a mapping by ``names``; none
                negative, and they need not sum to 1. None: those of ``temperature``, or of a
                schedule that begins at 0.
            seed: decides the order, together with ``epoch``.
            n_samples: how many; None for as many as there are before a source is exhausted for the
                first time or, with ``max_epochs``, until all are.
            epoch: see :meth:`at_epoch`.
            classes: as for :meth:`combine`.
            names: a name for each source.
            schedule: pairs of a sample, and the proportions that hold from there on.
            temperature: makes the proportions from the sizes, ``n ** (1 / temperature)``.
            max_epochs: the passes after which a source leaves the mix, for all sources or by name.
            consumed: how many samples of each source the mixes before this one had, by name, so
                that this one continues them. ``Loader.continue_with`` counts them.

        Raises:
            ConfigError: see ``MixedDatasetIterator``.
        """
        from data_stack.dataset.iterator.layers.mixed import MixedDatasetIterator

        first, *more = self._with_common_classes(others, classes)
        return first._stack_layer(
            MixedDatasetIterator,
            *more,
            proportions=proportions,
            seed=seed,
            n_samples=n_samples,
            epoch=epoch,
            names=names,
            schedule=schedule,
            temperature=temperature,
            max_epochs=max_epochs,
            consumed=consumed,
        )

    def resample(
        self, n_samples: int, *, seed: int, weights: npt.ArrayLike | None = None, epoch: int = 0
    ) -> _Same:
        """Return samples drawn with replacement.

        Args:
            n_samples: how many.
            seed: decides the draw, together with ``epoch``.
            weights: shape ``(len(self),)``; the probability of a sample is in proportion to its
                weight. None: all are alike.
            epoch: see :meth:`at_epoch`.
        """
        from data_stack.dataset.iterator.layers.resampled import ResampledDatasetIterator

        return self._stack_layer(
            ResampledDatasetIterator, n_samples=n_samples, seed=seed, weights=weights, epoch=epoch
        )

    def balance(
        self,
        *,
        seed: int,
        by: ColumnKey | None = None,
        n_samples: int | None = None,
        epoch: int = 0,
    ) -> _Same:
        """Return every class equally often; reads the column ``by``.

        See ``BalancedDatasetIterator``.

        Args:
            seed: decides the order, together with ``epoch``.
            by: the column of classes.
            n_samples: how many; None for as many as this iterator has.
            epoch: see :meth:`at_epoch`.
        """
        from data_stack.dataset.iterator.layers.balanced import BalancedDatasetIterator

        return self._stack_layer(
            BalancedDatasetIterator,
            by=self._class_column(by),
            seed=seed,
            n_samples=n_samples,
            epoch=epoch,
        )

    @explains_arguments(METHOD_ARGUMENTS)
    def filter(
        self,
        predicate: Callable[[Any], Any],
        *,
        column: ColumnKey | Sequence[ColumnKey] | None = None,
        batched: bool = False,
    ) -> _Same:
        """Return the samples for which ``predicate`` is true, found now.

        Reads all samples, or only the columns that are named.

        Args:
            predicate: takes a sample; with ``column``, the value of that column; with several
                columns, their values as one argument each. If ``batched``, it takes whole columns,
                and returns an array of bools, shape ``(n,)``.
            column: the columns to read; None for whole samples.
            batched: whether the predicate takes many samples at once.

        Raises:
            ConfigError: a column does not exist, or a batched predicate did not return one bool for
                each sample.
        """
        from data_stack.dataset.iterator.layers.filtered import FilteredDatasetIterator

        return self._stack_layer(
            FilteredDatasetIterator, predicate=predicate, column=column, batched=batched
        )

    def sort(self, by: ColumnKey, *, descending: bool = False) -> _Same:
        """Return the samples in the order of a column's values; reads that column now.

        Samples of equal values stay in their order.

        Args:
            by: the column.
            descending: whether the largest value comes first.

        Raises:
            ConfigError: a value is None, or two values cannot be compared.
        """
        from data_stack.dataset.iterator.layers.ordered import SortedDatasetIterator

        return self._stack_layer(SortedDatasetIterator, by=by, descending=descending)

    def deduplicate(self, by: ColumnKey | Sequence[ColumnKey] | None = None) -> _Same:
        """Return the samples without those that equal an earlier one.

        Reads the columns that are compared now.

        Args:
            by: the columns to compare; None for whole samples.

        Raises:
            ConfigError: a sample holds an object of unknown content.
        """
        from data_stack.dataset.iterator.layers.deduplicated import DeduplicatedDatasetIterator

        return self._stack_layer(DeduplicatedDatasetIterator, by=by)

    def windows(
        self,
        length: int,
        *,
        stride: int = 1,
        order_by: ColumnKey | None = None,
        max_gap: float | timedelta | np.timedelta64 | None = None,
        overlap: bool = True,
        group_by: ColumnKey | None = None,
        offsets: Mapping[int, Sequence[ColumnKey] | None] | None = None,
    ) -> _Stack:
        """Return runs of ``length`` consecutive samples; see ``WindowedDatasetIterator``.

        Reads the columns ``order_by`` and ``group_by`` now.

        Args:
            length: samples in a window.
            stride: samples from the start of a window to the start of the next.
            order_by: the column in whose order samples are consecutive; None for their order here.
            max_gap: the largest difference of ``order_by`` between two samples of a window.
            overlap: whether windows may share samples.
            group_by: a column whose values are equal in all samples of a window.
            offsets: for each offset the columns to read, None for whole samples; a window is then a
                dict with a sample for each offset.

        Raises:
            ConfigError: a value of ``order_by`` is missing, or two of them cannot be compared or
                subtracted.
        """
        from data_stack.dataset.iterator.layers.windowed import WindowedDatasetIterator

        return self._stack_layer(
            WindowedDatasetIterator,
            length=length,
            stride=stride,
            order_by=order_by,
            max_gap=max_gap,
            overlap=overlap,
            group_by=group_by,
            offsets=offsets,
        )

    def pack(
        self: Any,
        length: int,
        column: ColumnKey | None = None,
        *,
        with_columns: Sequence[str] = (),
        strategy: Literal["concat", "best_fit", "first_fit"] = "concat",
        max_documents: int | None = None,
        too_long: Literal["cut", "drop", "refuse"] = "cut",
        seed: int | None = None,
        epoch: int = 0,
        end_token: int | None = None,
        end_values: Mapping[str, Any] | None = None,
        padding: Mapping[str, Any] | None = None,
        drop_last: bool = True,
        storage: StorageConnector | str | os.PathLike[str] | None = None,
    ) -> _Stack:
        """Return documents of tokens put together into sequences of ``length`` tokens.

        Reads all documents once, now, to know their lengths. A sample is a dict of ``tokens``, the
        columns of ``with_columns``, ``segment_ids`` (1, 2, … for the documents in the sequence, 0
        for padding) and ``positions`` (of each token in its document), each of shape ``(length,)``.
        See ``PackedDatasetIterator``.

        ::

            packed = documents.pack(
                8192, "tokens", with_columns=["loss_mask"], strategy="best_fit", seed=7
            )

        Args:
            length: the number of tokens of a sequence.
            column: the documents; None for the sample proper.
            with_columns: the names of columns that have a value for each token.
            strategy: ``"concat"`` concatenates documents, and cuts them where a sequence is full;
                ``"best_fit"`` keeps documents whole, with the least padding; ``"first_fit"`` keeps
                documents whole, and puts neighbours together.
            max_documents: the largest number of documents in a sequence; None for no limit.
            too_long: whether documents of more than ``length`` tokens are cut, left out, or an
                error.
            seed: decides an order of the documents, together with ``epoch``; None keeps theirs.
            epoch: see :meth:`at_epoch`.
            end_token: put after each document; None for none.
            end_values: for each column of ``with_columns`` the value beside ``end_token``.
            padding: for columns the value where a sequence has no token, ``{"labels": -100}``; 0
                for the others.
            drop_last: whether ``"concat"`` leaves out a last sequence that is not full.
            storage: keeps the lengths for the next time: a path, a URL or a connector. They lie in
                ``packed/``, named by the fingerprint of the documents.

        Raises:
            ConfigError: see ``PackedDatasetIterator``; or ``storage`` is given, and the documents
                have no reliable fingerprint.
        """
        from data_stack.dataset.iterator.layers.documents import measure_documents
        from data_stack.dataset.iterator.layers.packed import PackedDatasetIterator
        from data_stack.formats.stored_lengths import StoredLengths
        from data_stack.repository.default_storage import storage_connector_from_url

        measure: Any = measure_documents
        if isinstance(storage, (str, os.PathLike)):
            storage = storage_connector_from_url(storage)
        if storage is not None:
            measure = StoredLengths(self, storage)
        packed: Any = self._stack_layer(
            PackedDatasetIterator,
            length=length,
            column=column,
            with_columns=with_columns,
            strategy=strategy,
            max_documents=max_documents,
            too_long=too_long,
            seed=seed,
            epoch=epoch,
            end_token=end_token,
            end_values=end_values,
            padding=padding,
            drop_last=drop_last,
            measure=measure,
        )
        return packed  # type: ignore[no-any-return]  # of its own kind

    def shard(
        self,
        rank: int,
        world: int,
        *,
        contiguous: bool = False,
        uneven: Literal["keep", "pad", "drop"] = "keep",
    ) -> _Same:
        """Return the samples of one of several ranks; see ``ShardedDatasetIterator``.

        Args:
            rank: from 0 to ``world - 1``.
            world: the number of ranks.
            contiguous: whether a rank has a run of neighbours, not every ``world``-th sample.
            uneven: what becomes of the samples that remain when ``world`` does not divide the
                number of samples: ``"keep"`` gives some ranks one more, ``"pad"`` repeats samples
                from the start, ``"drop"`` leaves samples out.
        """
        from data_stack.dataset.iterator.layers.sharded import ShardedDatasetIterator

        return self._stack_layer(
            ShardedDatasetIterator, rank=rank, world=world, contiguous=contiguous, uneven=uneven
        )

    # ------------------------------------------------------------------ what a sample is

    @explains_arguments(METHOD_ARGUMENTS)
    def map(
        self,
        function: Callable[..., Any],
        *,
        column: ColumnKey | None = None,
        columns: Sequence[str] | None = None,
        batched: bool = False,
        seed: int | None = None,
        epoch: int = 0,
    ) -> _Stack:
        """Return ``function`` of each sample, or of one column, called whenever one is read.

        ::

            # The other columns, and all names, stay.
            iterator.map(lambda image: image / 255, column="image")
            iterator.map(lambda sample: (sample[0].mean(), sample[1]), columns=["mean", "label"])

        The columns of tuples have no names after a map of whole samples, which may move them,
        unless ``columns`` declares these. See ``MappedDatasetIterator``.

        Args:
            function: takes a sample, or a value of ``column``. If ``batched``, it takes a batch
                (columns, as ``read_batch`` returns them), or the column, and returns as many rows.
            column: the only one to change; None for whole samples.
            columns: the names of the columns of the tuples that ``function`` makes of whole
                samples.
            batched: whether ``function`` takes many samples at once.
            seed: an integer for a function that draws random numbers. Its second argument is then a
                ``numpy.random.Generator`` (if ``batched``, a list of one for each sample), which
                seed, epoch and the sample's position alone decide.
            epoch: see :meth:`at_epoch`.
        """
        from data_stack.dataset.iterator.layers.mapped import MappedDatasetIterator

        # The layer refuses a single text; tuple() would make names of its letters.
        names: Any = columns
        if columns is not None and not isinstance(columns, str):
            names = tuple(columns)
        mapped = self._stack_layer(
            MappedDatasetIterator,
            function=function,
            batched=batched,
            seed=seed,
            epoch=epoch,
            column=column,
            names=names,
        )
        if names is None or hasattr(mapped, "dataset_meta"):
            return mapped
        return mapped._with_meta(DatasetMeta(column_names=names))

    def select(self, *columns: ColumnKey) -> _Stack:
        """Return samples of only these columns, in this order.

        The other columns are not read where that is possible. Without names and a schema, sample 0
        is read now, to know the columns.

        Raises:
            ConfigError: there is no such column, or one is named twice.
        """
        from data_stack.dataset.iterator.layers.fields import FieldsDatasetIterator

        return self._stack_layer(FieldsDatasetIterator, columns=list(columns))

    def rename(self, names: Mapping[str, str]) -> _Stack:
        """Return dict samples with new names for some of their keys.

        Args:
            names: the new names by the old ones: ``{"old": "new"}``.

        Raises:
            ConfigError: two columns would have one name. When samples are read: they are not dicts,
                or have no such key.
        """
        from data_stack.dataset.iterator.layers.renamed import RenamedDatasetIterator

        return self._stack_layer(RenamedDatasetIterator, names=names)

    def as_dict(self, *names: str) -> _Stack:
        """Return tuple samples as dicts.

        Args:
            names: one for each position; without any, the names that the columns have.

        Raises:
            ConfigError: the columns have no names, or two names are the same. When samples are
                read: they are not tuples of as many columns.
        """
        from data_stack.dataset.iterator.layers.dicts import DictsDatasetIterator

        return self._stack_layer(DictsDatasetIterator, names=list(names))

    def as_tuple(self, *columns: ColumnKey) -> _Stack:
        """Return samples as tuples.

        Args:
            columns: the columns of the tuples. Without any, dict samples become tuples of all their
                values.
        """
        from data_stack.dataset.iterator.layers.tuples import TuplesDatasetIterator

        return self._stack_layer(TuplesDatasetIterator, columns=list(columns))

    def zip(self, *others: FluentIterator[Any, Any], classes: ClassesOfZip = "same") -> _Stack:
        """Return the columns of several equally long iterators side by side.

        Tuples are joined end to end, dicts are united.

        Args:
            others: the other iterators.
            classes: as for :meth:`combine`; ``"first"`` keeps all labels, and the ``class_names``
                of this iterator, whose target is that of the stack.

        Raises:
            ConfigError: the lengths or the lists of classes differ. When samples are read: two
                iterators have a column of the same key, or only some return dicts.
        """
        from data_stack.dataset.iterator.layers.zipped import ZippedDatasetIterator

        first, *more = self._with_common_classes(others, classes)
        return first._stack_layer(ZippedDatasetIterator, *more)

    def encode(
        self: Any,
        encoders: Mapping[ColumnKey, EncoderLike] | EncoderLike,
        *,
        fit_on: FluentIterator[Any, Any] | None = None,
    ) -> _Stack:
        """Return samples with columns replaced by what encoders make of them.

        Args:
            encoders: for each column its encoder. A single encoder is for the sample proper, which
                is where the meta says; without a meta it is column 0.
            fit_on: the iterator, as a rule the training split, on which encoders that are not
                fitted yet are fitted now.

        Raises:
            ModelNotTrainedError: an encoder is not fitted, and there is no ``fit_on``.
        """
        from data_stack.dataset.iterator.layers.encoded import encode

        return encode(self, encoders, fit_on=fit_on)  # type: ignore[arg-type, return-value]

    def map_classes(
        self: Any,
        mapping: ClassMapping | Mapping[Any, Any],
        *,
        columns: Sequence[ColumnKey] | None = None,
    ) -> _Stack:
        """Return samples with classes replaced by others, see ``ClassMapping``.

        Args:
            mapping: what becomes of each class; a plain dict leaves classes that it does not name
                as they are.
            columns: which columns; None for the target.
        """
        from data_stack.dataset.iterator.layers.mapped_classes import map_classes

        return map_classes(self, mapping, columns=columns)  # type: ignore[return-value]

    def one_hot(
        self: Any,
        classes: Sequence[Any] | ClassMapping | None = None,
        *,
        column: ColumnKey | None = None,
    ) -> _Stack:
        """Return samples whose target is a vector of zeros with a one at its class, float32.

        Args:
            classes: in the order of the positions; None for those of the meta's ``class_names`` if
                it has any, otherwise the sorted distinct values, read now.
            column: None for the target.
        """
        from data_stack.dataset.iterator.layers.one_hot import one_hot

        return one_hot(self, classes, column=column)  # type: ignore[return-value]

    # ------------------------------------------------------------------ where samples are kept

    def in_memory(self) -> _Same:
        """Read all samples now, and return them as they are kept in memory.

        A column is one array where its values have one dtype and shape.
        """
        from data_stack.dataset.iterator.layers.in_memory import InMemoryDatasetIterator

        return self._stack_layer(InMemoryDatasetIterator)

    @explains_arguments(METHOD_ARGUMENTS)
    def cache(
        self,
        max_bytes: int | None = None,
        *,
        storage: StorageConnector | str | os.PathLike[str] | None = None,
        identifier: str | None = None,
        version: str | None = None,
    ) -> _Same:
        """Return these samples, kept when they are read.

        They are kept in memory up to ``max_bytes``, or all of them as records in ``storage``. See
        ``CachedDatasetIterator`` and ``StoredCacheDatasetIterator``.

        Args:
            max_bytes: the size of a cache in memory; None for no limit.
            storage: the store of a stored cache: a path, a URL or a connector.
            identifier: the folder in ``storage`` in which the cache has a folder named by its
                fingerprint; None for ``caches``.
            version: a name for what is stored. Change it when the samples change and the
                fingerprint cannot know that. It is needed where an iterator of your own class, a
                lambda or a callable object takes part.

        Raises:
            ConfigError: arguments exclude each other, or a ``version`` is needed.
        """
        from data_stack.dataset.iterator.layers.cached import CachedDatasetIterator
        from data_stack.formats.stored_cache import StoredCacheDatasetIterator
        from data_stack.repository.default_storage import storage_connector_from_url

        if storage is None:
            if identifier is not None or version is not None:
                raise ConfigError("identifier= and version= require storage=")
            return self._stack_layer(CachedDatasetIterator, max_bytes=max_bytes)
        if max_bytes is not None:
            raise ConfigError(
                f"a stored cache keeps all samples; max_bytes={max_bytes!r} is for a cache in "
                f"memory"
            )
        if isinstance(storage, (str, os.PathLike)):
            storage = storage_connector_from_url(storage)
        return self._stack_layer(
            StoredCacheDatasetIterator, storage=storage, identifier=identifier, version=version
        )

    @explains_arguments(METHOD_ARGUMENTS)
    def batch(self, batch_size: int, *, drop_last: bool = False) -> _Stack:
        """Return an iterator whose samples are batches.

        A batch is the columns of ``batch_size`` consecutive samples.

        Args:
            batch_size: samples in a batch, at least 1.
            drop_last: whether a last batch that is shorter is left out.
        """
        from data_stack.dataset.iterator.layers.batched import BatchedDatasetIterator

        return self._stack_layer(BatchedDatasetIterator, batch_size=batch_size, drop_last=drop_last)

    # ------------------------------------------------------------------ divided

    @overload
    def split(
        self,
        ratios: Mapping[str, float],
        *,
        seed: int = 0,
        stratify: ColumnKey | bool = False,
        group_by: ColumnKey | None = None,
        time: ColumnKey | None = None,
        by: None = None,
    ) -> dict[str, _Same]: ...

    @overload
    def split(
        self,
        ratios: Sequence[float],
        *,
        seed: int = 0,
        stratify: ColumnKey | bool = False,
        group_by: ColumnKey | None = None,
        time: ColumnKey | None = None,
        by: None = None,
    ) -> list[_Same]: ...

    @overload
    def split(self, *, by: ColumnKey) -> dict[Any, _Same]: ...

    @explains_arguments(METHOD_ARGUMENTS)
    def split(
        self: Any,
        ratios: Sequence[float] | Mapping[str, float] | None = None,
        *,
        seed: int = 0,
        stratify: ColumnKey | bool = False,
        group_by: ColumnKey | None = None,
        time: ColumnKey | None = None,
        by: ColumnKey | None = None,
    ) -> list[_Same] | dict[Any, _Same]:
        """Divide into parts, each in this iterator's order. Reads only the columns named.

        ::

            train, test = iterator.split([0.8, 0.2], seed=1)
            parts = iterator.split({"train": 0.8, "val": 0.2}, stratify=True)
            parts["train"]

        Args:
            ratios: sizes as fractions of sum 1, or as counts of all samples, ``[1000, 437]``; a
                mapping names the parts.
            seed: decides the drawing.
            stratify: a column whose values are mixed equally in all parts; True for the target.
            group_by: a column whose equal values stay together in one part.
            time: a column to divide by: the earliest samples are in the first part, and equal
                values in one part. It may be text only if the order of the text is that of the
                times, as of ``2023-01-31``, but not of ``01/31/2023``.
            by: a column that names the part of each sample (a predefined split); without ratios.

        Returns:
            A list of iterators, or a dict if the parts have names.

        Raises:
            ConfigError: ratios do not sum to 1, nor counts to the number of samples; a class or
                group is too small or large; or arguments exclude each other.
        """
        from data_stack.dataset.splits.parts import split
        from data_stack.show.splits import Splits

        parts: Any = split(
            self, ratios, seed=seed, stratify=stratify, group_by=group_by, time=time, by=by
        )
        if isinstance(parts, dict):
            return Splits(parts)
        return parts

    def folds(
        self: Any,
        n_folds: int,
        *,
        seed: int | None = 0,
        stratify: ColumnKey | bool = False,
        group_by: ColumnKey | None = None,
    ) -> list[Fold[_Same]]:
        """Divide for cross validation: each fold has ``train`` and ``test``.

        Args:
            n_folds: the number of folds, at least 2.
            seed: decides the drawing; None: folds are consecutive, not drawn.
            stratify: as for :meth:`split`.
            group_by: as for :meth:`split`.

        Raises:
            ConfigError: fewer than 2 folds, or more than there are samples, members of a class, or
                groups.
        """
        from data_stack.dataset.splits.parts import folds

        parts: Any = folds(self, n_folds, seed=seed, stratify=stratify, group_by=group_by)
        return parts

    def at_epoch(self: Any, epoch: int) -> _Same:
        """Return the same stack with its random layers drawn for another epoch.

        Random layers are shuffled, mixed, resampled and balanced samples, and maps with a seed.

        Args:
            epoch: the number of the epoch, at least 0. A stack is made for epoch 0.

        Raises:
            ConfigError: an iterator of a class that is not a layer of data_stack is stacked on
                something random.
        """
        from data_stack.dataset.iterator.epochs import at_epoch

        return at_epoch(self, epoch)  # type: ignore[return-value]

    # ------------------------------------------------------------------ inside

    def _stack_layer(self, layer: type[Any], *others: Any, **arguments: Any) -> Any:
        """Stack a layer on this iterator.

        Args:
            layer: the class of the layer.
            others: further iterators that it is stacked on.
            arguments: the other arguments of the constructor of ``layer``.
        """
        return layer._from_arguments([self, *others], arguments)

    def _with_common_classes(self, others: Sequence[Any], classes: ClassesOfZip) -> list[Any]:
        """Return this iterator and ``others``, with labels that mean the same classes."""
        if classes == "same":
            # The layer compares the classes itself.
            return [self, *others]
        from data_stack.dataset.iterator.layers.common_classes import with_common_classes

        return with_common_classes([self, *others], classes)

    def _view(self, indices: Any) -> Any:
        """Return the samples at ``indices``."""
        from data_stack.dataset.iterator.layers.view import DatasetIteratorView

        return self._stack_layer(DatasetIteratorView, indices=indices)

    def _with_meta(self, meta: DatasetMetaIF) -> Any:
        """Return the same samples, with what is known of them."""
        from data_stack.dataset.iterator.layers.informed import InformedDatasetIterator

        return InformedDatasetIterator._from_arguments([self], {"dataset_meta": meta})

    def _class_column(self, by: ColumnKey | None) -> ColumnKey:
        """Return the column ``by``; for None the column of the target."""
        if by is not None:
            return column_key(self, by)  # type: ignore[no-any-return]  # of one key one
        meta = getattr(self, "dataset_meta", None)
        if meta is None:
            return 1
        return meta.target_pos
