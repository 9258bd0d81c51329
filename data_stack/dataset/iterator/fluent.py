"""What every iterator can be made into by a method: ``iterator.shuffle(seed=1).take(100)``."""

# mypy: no-warn-return-any, no-warn-unused-ignores
# A layer is made by name, and a type checker cannot see that it has this iterator's kind and samples.

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Union

from data_stack.dataset.iterator.indices import check_integer
from data_stack.dataset.iterator.names_of_others import METHOD_ARGUMENTS, FamiliarNames, explains, yielding
from data_stack.dataset.iterator.registry import LAYERS, OPERATIONS
from data_stack.dataset.meta import DatasetMeta
from data_stack.exception import ConfigError

if TYPE_CHECKING:
    import os
    from datetime import timedelta

    import numpy as np
    import numpy.typing as npt

    from data_stack.dataset.encoders import ClassMapping, EncoderLike
    from data_stack.io.storage_connectors import StorageConnector

ColumnKey = Union[int, str]
"""Names a column: a position in tuple samples, a key of dict samples."""

_Stack = TypeVar("_Stack")
_Fold = TypeVar("_Fold")
_Same = TypeVar("_Same", covariant=True)


class FluentIterator(FamiliarNames, Generic[_Stack, _Fold, _Same]):
    """Methods that stack a layer on this iterator, or say something about it. None of them reads a sample unless it says so.

    Each layer is an iterator again. Stacked on an iterator with meta, it has meta too, changed where the layer changes what is
    true. A class that has an attribute of one of these names keeps it; data_stack itself does not call these methods.

    ``column`` and ``by`` name a column: a position in tuple samples, or its name where the dataset declares ``columns``; a key of
    dict samples. ``by=None`` means the target, of the iterator's meta if it has one, otherwise column 1.

    Type parameters: an iterator of this kind, with meta or without; a fold of it; one with samples of the same type.
    """

    # ------------------------------------------------------------------ which samples, in which order

    def take(self, n_samples: int) -> _Same:
        """The first ``n_samples`` samples; all of them where there are fewer."""
        return self._stack_layer("view", indices=slice(0, check_integer("n_samples", n_samples, at_least=0)))

    @yielding
    def head(self, n_samples: int = 5) -> _Same:
        """The first few samples, as :meth:`take`."""
        return self._stack_layer("view", indices=slice(0, check_integer("n_samples", n_samples, at_least=0)))

    def skip(self, n_samples: int) -> _Same:
        """All but the first ``n_samples`` samples."""
        return self._stack_layer("view", indices=slice(check_integer("n_samples", n_samples, at_least=0), None))

    @explains(METHOD_ARGUMENTS)
    def shuffle(self, seed: int | None = None, *, epoch: int = 0) -> _Same:
        """All samples in an order that ``seed``, any integer, and ``epoch`` decide; no array of positions for large iterators.

        None draws a seed, which the iterator shows, as do its recipe and :meth:`explain`. Processes that share the samples need
        the same one: give it there.
        """
        return self._stack_layer("shuffled", seed=secrets.randbelow(10**6) if seed is None else seed, epoch=epoch)

    def repeat(self, times: int) -> _Same:
        """All samples ``times`` times, one pass after the other."""
        return self._stack_layer("repeated", times=times)

    def combine(self, *others: FluentIterator[Any, Any, Any]) -> _Same:
        """These samples, then those of ``others``, one iterator after the other."""
        return self._stack_layer("combined", *others)

    def interleave(self, *others: FluentIterator[Any, Any, Any], stop: Literal["longest", "shortest"] = "longest") -> _Same:
        """One sample of each iterator in turn, until all are exhausted, or until the first one is."""
        return self._stack_layer("interleaved", *others, stop=stop)

    def mix(
        self,
        *others: FluentIterator[Any, Any, Any],
        proportions: Sequence[float],
        seed: int,
        n_samples: int | None = None,
        epoch: int = 0,
    ) -> _Same:
        """Samples of several iterators in stated proportions, each iterator's in a shuffled order of their own.

        The iterator that is exhausted starts again in another order. At every position the number of samples so far differs
        from the stated proportion by less than one block, see ``MixedDatasetIterator``.

        Args:
            others: the other iterators.
            proportions: one number for each iterator, this one first; none negative, and they need not sum to 1.
            seed: decides the order, together with ``epoch``.
            n_samples: how many; None for as many as there are before an iterator is exhausted for the first time.
            epoch: see :meth:`at_epoch`.
        """
        return self._stack_layer("mixed", *others, proportions=proportions, seed=seed, n_samples=n_samples, epoch=epoch)

    def resample(self, n_samples: int, *, seed: int, weights: npt.ArrayLike | None = None, epoch: int = 0) -> _Same:
        """``n_samples`` samples drawn with replacement, each with a probability in proportion to its weight (None: all alike)."""
        return self._stack_layer("resampled", n_samples=n_samples, seed=seed, weights=weights, epoch=epoch)

    def balance(self, *, seed: int, by: ColumnKey | None = None, n_samples: int | None = None, epoch: int = 0) -> _Same:
        """Every class equally often; reads the column ``by``. See ``BalancedDatasetIterator``.

        Args:
            seed: decides the order, together with ``epoch``.
            by: the column of classes.
            n_samples: how many; None for as many as this iterator has.
            epoch: see :meth:`at_epoch`.
        """
        return self._stack_layer("balanced", by=self._class_column(by), seed=seed, n_samples=n_samples, epoch=epoch)

    @explains(METHOD_ARGUMENTS)
    def filter(
        self, predicate: Callable[[Any], Any], *, column: ColumnKey | Sequence[ColumnKey] | None = None, batched: bool = False
    ) -> _Same:
        """The samples for which ``predicate`` is true, found now.

        Args:
            predicate: of a sample; with ``column``, of that column's value (of several columns: of their values, one argument
                each); ``batched``, of whole columns, giving an array of bools.
            column: what to read; None for whole samples.
            batched: whether the predicate takes many samples at once.
        """
        return self._stack_layer("filtered", predicate=predicate, column=column, batched=batched)

    def sort(self, by: ColumnKey, *, descending: bool = False) -> _Same:
        """The samples in the order of a column's values, equal ones in their old order; reads that column now."""
        return self._stack_layer("sorted", by=by, descending=descending)

    def deduplicate(self, by: ColumnKey | Sequence[ColumnKey] | None = None) -> _Same:
        """The first of all samples that are equal, in whole or in the columns ``by``; reads these now."""
        return self._stack_layer("deduplicated", by=by)

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
        """Runs of ``length`` consecutive samples, see ``WindowedDatasetIterator``."""
        arguments = {"stride": stride, "order_by": order_by, "max_gap": max_gap, "overlap": overlap, "group_by": group_by}
        return self._stack_layer("windowed", length=length, **arguments, offsets=offsets)

    def shard(self, rank: int, world: int, *, contiguous: bool = False, uneven: Literal["keep", "pad", "drop"] = "keep") -> _Same:
        """The part of one of ``world`` ranks, see ``ShardedDatasetIterator``."""
        return self._stack_layer("sharded", rank=rank, world=world, contiguous=contiguous, uneven=uneven)

    # ------------------------------------------------------------------ what a sample is

    @explains(METHOD_ARGUMENTS)
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
        """``function`` of each sample, or of one column, called whenever one is read; see ``MappedDatasetIterator``.

        ::

            iterator.map(lambda image: image / 255, column="image")     # the other columns, and all names, stay
            iterator.map(lambda sample: (sample[0].mean(), sample[1]), columns=["brightness", "label"])

        The columns of tuples have no names after a map of whole samples, which may move them, unless ``columns`` declares these.

        Args:
            function: of a sample, which it takes apart itself, or of a value of ``column``; ``batched``: of a batch (columns, as
                ``read_batch`` gives them), or of the column, giving as many.
            column: the only one to change; None for whole samples.
            columns: names of the columns of the tuples that ``function`` makes of whole samples.
            batched: whether ``function`` takes many samples at once.
            seed: of a function that draws random numbers: it gets a ``numpy.random.Generator`` as second argument (with
                ``batched``, a list of one for each sample) that seed, epoch and the sample's position alone decide.
            epoch: see :meth:`at_epoch`.
        """
        names: Any = columns if columns is None or isinstance(columns, str) else tuple(columns)
        arguments = {"function": function, "batched": batched, "seed": seed, "epoch": epoch, "column": column, "names": names}
        stacked = self._stack_layer("mapped", **arguments)
        if names is None or hasattr(stacked, "dataset_meta"):
            return stacked
        return LAYERS["informed"]._rebuilt([stacked], {"dataset_meta": DatasetMeta(column_names=names)})  # type: ignore[no-any-return]

    def select(self, *columns: ColumnKey) -> _Stack:
        """Samples of only these columns, in this order; the others are not read where that is possible.

        A name or key that there is not is an error now. Where neither names nor a schema tell, sample 0 is read for it, and for
        the meta if there is one.
        """
        return self._stack_layer("fields", columns=list(columns))

    def rename(self, names: Mapping[str, str]) -> _Stack:
        """Dict samples with new names for some of their keys: ``{"old": "new"}``."""
        return self._stack_layer("renamed", names=names)

    def as_dict(self, *names: str) -> _Stack:
        """Tuple samples as dicts: one name for each position; without any, the names that the columns have."""
        return self._stack_layer("dicts", names=list(names))

    def as_tuple(self, *columns: ColumnKey) -> _Stack:
        """Samples as tuples of these columns; of dict samples without any, of all keys in their order."""
        return self._stack_layer("tuples", columns=list(columns))

    def zip(self, *others: FluentIterator[Any, Any, Any]) -> _Stack:
        """The columns of several equally long iterators side by side: tuples end to end, dicts united."""
        return self._stack_layer("zipped", *others)

    def encode(
        self, encoders: Mapping[ColumnKey, EncoderLike] | EncoderLike, *, fit_on: FluentIterator[Any, Any, Any] | None = None
    ) -> _Stack:
        """Columns replaced by what encoders make of them.

        Args:
            encoders: for each column its encoder; a bare one is for the sample proper, of the meta if there is one,
                otherwise column 0.
            fit_on: the iterator, as a rule the training split, that encoders which are not fitted yet are fitted on now.

        Raises:
            ModelNotTrainedError: an encoder is not fitted, and there is no ``fit_on``.
        """
        return OPERATIONS["encode"](self, encoders, fit_on=fit_on)  # type: ignore[no-any-return]

    def map_classes(self, mapping: ClassMapping | Mapping[Any, Any], *, columns: Sequence[ColumnKey] | None = None) -> _Stack:
        """Classes replaced by others, see ``ClassMapping``.

        Args:
            mapping: what becomes of each class; a plain dict leaves classes that it does not name as they are.
            columns: which columns; None for the target.
        """
        return OPERATIONS["map_classes"](self, mapping, columns=columns)  # type: ignore[no-any-return]

    def one_hot(self, classes: Sequence[Any] | ClassMapping | None = None, *, column: ColumnKey | None = None) -> _Stack:
        """The target as a vector of zeros with a one at the position of its class, float32.

        Args:
            classes: in the order of the positions; None for those of the meta's ``class_names`` if it has any, otherwise the
                sorted distinct values, read now.
            column: None for the target.
        """
        return OPERATIONS["one_hot"](self, classes, column=column)  # type: ignore[no-any-return]

    # ------------------------------------------------------------------ where samples are kept

    def in_memory(self) -> _Same:
        """All samples, read now and kept: as columns where they have one shape, so that they cost no Python objects."""
        return self._stack_layer("in_memory")

    def cache(
        self,
        max_bytes: int | None = None,
        *,
        storage: StorageConnector | str | os.PathLike[str] | None = None,
        identifier: str | None = None,
        version: str | None = None,
    ) -> _Same:
        """Samples kept when they are read: in memory up to ``max_bytes``, or all of them in a resource of ``storage``.

        See ``CachedDatasetIterator`` and ``StoredCacheDatasetIterator``.

        Args:
            max_bytes: of a cache in memory; None for no limit.
            storage: of a stored cache: a path, a URL or a connector.
            identifier: of its resource in ``storage``; None for ``caches/`` and the fingerprint of this iterator.
            version: of what is stored: yours to change when the samples change and the fingerprint cannot know. Needed where an
                iterator of your own class, a lambda or a callable object takes part.

        Raises:
            ConfigError: ``max_bytes`` is given together with ``storage``, ``identifier`` or ``version`` without it, or a
                ``version`` is needed.
        """
        if storage is None:
            if identifier is not None or version is not None:
                raise ConfigError("a cache with an identifier or a version is a stored one: give its storage, too")
            return self._stack_layer("cached", max_bytes=max_bytes)
        if max_bytes is not None:
            raise ConfigError(f"a stored cache keeps all samples; max_bytes={max_bytes!r} is for a cache in memory")
        return self._stack_layer("stored_cache", storage=storage, identifier=identifier, version=version)

    @yielding
    @explains(METHOD_ARGUMENTS)
    def batch(self, batch_size: int, *, drop_last: bool = False) -> _Stack:
        """An iterator whose samples are batches: columns of ``batch_size`` consecutive samples (the last one may be shorter)."""
        return self._stack_layer("batched", batch_size=batch_size, drop_last=drop_last)

    # ------------------------------------------------------------------ divided

    @explains(METHOD_ARGUMENTS)
    def split(
        self,
        ratios: Sequence[float] | Mapping[str, float] | None = None,
        *,
        seed: int = 0,
        stratify: ColumnKey | bool = False,
        group_by: ColumnKey | None = None,
        time: ColumnKey | None = None,
        by: ColumnKey | None = None,
    ) -> Any:
        """Divide into parts, each in this iterator's order. Reads only the columns named.

        ::

            train, test = iterator.split([0.8, 0.2], seed=1)
            parts = iterator.split({"train": 0.8, "val": 0.2}, stratify=True)     # parts["train"]

        Args:
            ratios: sizes as fractions of sum 1, or as counts of all samples, ``[1000, 437]``; a mapping names the parts.
            seed: decides the drawing.
            stratify: a column whose values shall be mixed equally in all parts; True for the target.
            group_by: a column whose equal values shall stay together in one part.
            time: a column to divide by: the earliest samples are in the first part, and equal values in one part.
            by: a column that names the part of each sample (a predefined split); without ratios.

        Returns:
            A list of iterators, or a dict if the parts have names.

        Raises:
            ConfigError: ratios do not sum to 1, nor counts to the number of samples; a class or group is too small or large; or
                arguments exclude each other.
        """
        return OPERATIONS["split"](self, ratios, seed=seed, stratify=stratify, group_by=group_by, time=time, by=by)

    def folds(
        self, n_folds: int, *, seed: int | None = 0, stratify: ColumnKey | bool = False, group_by: ColumnKey | None = None
    ) -> list[_Fold]:
        """Folds for cross validation, each with ``train`` and ``test``; seed None: consecutive, not drawn.

        Raises:
            ConfigError: fewer than 2 folds, or more than there are samples, members of a class, or groups.
        """
        return OPERATIONS["folds"](self, n_folds, seed=seed, stratify=stratify, group_by=group_by)  # type: ignore[no-any-return]

    # ------------------------------------------------------------------ described

    def at_epoch(self, epoch: int) -> _Same:
        """The same stack with its random layers (shuffled, mixed, resampled, balanced, random maps) drawn for another epoch."""
        return OPERATIONS["at_epoch"](self, epoch)  # type: ignore[no-any-return]

    def recipe(self) -> dict[str, Any]:
        """Plain JSON data that names this stack exactly; ``data_stack.from_recipe`` rebuilds it. See ``docs/stacking.md``."""
        return OPERATIONS["recipe"](self)  # type: ignore[no-any-return]

    def fingerprint(self) -> str:
        """SHA-256 of the recipe, as far as it decides the samples: the same in every process, machine and Python version."""
        return OPERATIONS["fingerprint"](self)  # type: ignore[no-any-return]

    def explain(self) -> Any:
        """The stack as a tree, with lengths, costs and licences; prints as text, shows as HTML in a notebook."""
        return OPERATIONS["explain"](self)

    def licences(self) -> Any:
        """The licences of all datasets in the stack, with what they ask: attribution, share-alike and so on."""
        return OPERATIONS["licences"](self)

    def citation(self, *, with_data_stack: bool = False) -> str:
        """BibTeX entries of all datasets in the stack, each once; that of data_stack at the end, if asked."""
        return OPERATIONS["citation"](self, with_data_stack)  # type: ignore[no-any-return]

    def provenance(self) -> list[dict[str, Any]]:
        """Of each dataset in the stack: who prepared it, when, and from which sources. Plain JSON data.

        Returns:
            Dicts with ``name``, ``version``, ``split``, ``config``, ``distribution`` (of the plugin, now installed), and
            ``preparation``: None for a dataset that stores nothing, else a dict with ``created`` (ISO 8601, UTC), ``seconds``
            it took, ``factory``, ``distribution`` and ``framework`` that prepared it, ``adopted`` and ``sources``.
        """
        return OPERATIONS["provenance"](self)  # type: ignore[no-any-return]

    def __str__(self) -> str:
        """What :meth:`_repr_html_` shows, as text."""
        return str(OPERATIONS["page"](self))

    def _repr_html_(self) -> str:
        """What notebooks show: facts, eight samples, columns, classes, the stack; see ``docs/display.md``. It raises nothing."""
        return str(OPERATIONS["page"](self).to_html())

    def show(
        self,
        n_samples: int | None = None,
        *,
        seed: int | None = None,
        columns: Sequence[ColumnKey] | ColumnKey | None = None,
        per_class: int | None = None,
        n_columns: int | None = None,
        title: str | None = None,
    ) -> Any:
        """Draw samples with their labels in a grid, as a picture of Pillow, which notebooks display and ``.save()`` writes.

        Args:
            n_samples: how many at most; None: 100, or as many as ``per_class`` gives.
            seed: of random samples; None: equally many of each class, the first ones.
            columns: the column of the picture, and those of the labels; None: those of the meta.
            per_class: how many of each class at most, a row for each class.
            n_columns: pictures in a row.
            title: None: the dataset's name and tag.

        Raises:
            ConfigError: a number is out of range, or there is no such column.
            MissingDependencyError: Pillow is not installed.
        """
        return OPERATIONS["show"](
            self, n_samples, seed=seed, columns=columns, per_class=per_class, n_columns=n_columns, title=title
        )

    def plot(self, column: ColumnKey | None = None, *, bins: int = 30, title: str | None = None) -> Any:
        """Plot how often each value of a column occurs: bars of classes, a histogram of numbers. Reads the column.

        Args:
            column: None: the target.
            bins: of a histogram.
            title: of the figure; None: the dataset's name and tag.

        Returns:
            A figure of matplotlib, in the style of its ``rcParams``; notebooks display it.

        Raises:
            ConfigError: there is no such column, or it has neither classes nor numbers.
            MissingDependencyError: matplotlib is not installed.
        """
        return OPERATIONS["plot"](self, column, bins=bins, title=title)

    def report(self, report_format: str = "data_class", **options: Any) -> Any:
        """See ``DatasetIteratorReportGenerator.generate_report``."""
        return OPERATIONS["report"](self, report_format, **options)

    # ------------------------------------------------------------------ inside

    def _stack_layer(self, layer: str, *others: Any, **arguments: Any) -> Any:
        """The layer of that name on this iterator (and ``others``)."""
        return LAYERS[layer]._rebuilt([self, *others], arguments)

    def _class_column(self, by: ColumnKey | None) -> ColumnKey:
        """``by``, or where the target is."""
        if by is not None:
            return by
        meta = getattr(self, "dataset_meta", None)
        return 1 if meta is None else meta.target_pos
