"""The layers of a stack: what they share, views, shuffles, metas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import (
    DeclaredColumn,
    DistinctValues,
    OneToOneAccess,
    SampleAccess,
    access_to,
    own_access,
)
from data_stack.dataset.iterator.contract import (
    AccessedDatasetIterator,
    DatasetIteratorIF,
    InformedDatasetIteratorIF,
    as_iterator,
)
from data_stack.dataset.iterator.described import missing_attribute
from data_stack.dataset.meta import DatasetMetaIF, column_key_by
from data_stack.dataset.positions import (
    ComputedPositions,
    IndexArrayOfInts,
    Positions,
    as_index_array,
    blocks_at,
    check_integer,
    check_positions,
    compose,
    take,
)
from data_stack.dataset.randomness import KeyedPermutation, check_draw
from data_stack.exception import ConfigError
from data_stack.values.stacking import Batch, Column

_POSITIONS_AT_ONCE = 1 << 16

_Layer = TypeVar("_Layer", bound=type[Any])

LAYERS: dict[str, type[Any]] = {}
"""Classes of iterators by name; importing a module adds its classes."""


def layer(name: str, *, columns: Collection[str] = ()) -> Callable[[_Layer], _Layer]:
    """Decorates a class of iterators to register it as a layer. A subclass is a layer only if it is decorated, too.

    Args:
        name: of the layer in recipes.
        columns: the constructor's arguments that name columns, or lists of columns; the class gets positions in place of the
            names that a meta declares.
    """

    def register(kind: _Layer) -> _Layer:
        kind._layer_name, kind._column_arguments = name, frozenset(columns)
        LAYERS[name] = kind
        return kind

    return register


class LayerDatasetIterator(AccessedDatasetIterator):
    """A layer on one iterator.

    Args:
        dataset_iterator: what lies below; it stays the caller's to close.
        made_with: the other arguments of the layer, for recipes.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, **made_with: Any) -> None:
        as_iterator(dataset_iterator)  # refuses what has no samples
        self._dataset_iterator, self._stacked_on, self._made_with = (
            dataset_iterator,
            [dataset_iterator],
            made_with,
        )

    def _below(self) -> SampleAccess:
        return access_to(as_iterator(self._dataset_iterator))


@layer("view")
class DatasetIteratorView(LayerDatasetIterator):
    """The samples of ``dataset_iterator`` at ``indices``, in that order; nothing is copied.

    A view of a view reads from the bottom directly, so depth costs nothing; ``underlying_iterators`` still names the
    iterator it was made from. A slice or range keeps no array, however long; other indices take 4 bytes each, or 8 in an
    iterator of more than 2**31 samples.

    Args:
        dataset_iterator: the iterator looked through; it stays the caller's to close.
        indices: integers, each in ``[-n, n)`` for an iterator of n samples, repeats allowed; or n bools; or a slice.
            They are copied: changing them afterwards does not change the view.
        view_tags: notes of the caller about this view.

    Raises:
        DatasetOutOfBoundsError: a position lies outside of ``dataset_iterator``.
        TypeError: ``indices`` are not one-dimensional, or neither integers nor bools.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        indices: npt.ArrayLike | slice | ComputedPositions,
        view_tags: Mapping[str, Any] | None = None,
    ) -> None:
        # Checked here, not in __getitem__: a wrong split then fails where it was made, not hours later in a worker.
        super().__init__(dataset_iterator)
        length = len(as_iterator(dataset_iterator))
        self._given: Positions = (
            indices if isinstance(indices, ComputedPositions) else check_positions(indices, length)
        )
        self._gives_list = not hasattr(indices, "__array__")
        self._view_tags = None if view_tags is None else dict(view_tags)
        self._made_with = {"indices": self._given, "view_tags": self._view_tags}

    def make_access(self) -> SampleAccess:
        return RearrangedAccess(self._below(), self._given)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self._given, np.ndarray):
            self._given.setflags(write=False)

    @property
    def indices(self) -> Any:
        """The positions in ``underlying_iterators[0]``: an array if the view was made with one, otherwise a list of ints.

        Negative positions and masks are resolved. Each call makes a new object: in a loop, keep it in a variable.
        """
        positions = as_index_array(self._given)
        return positions.tolist() if self._gives_list else positions.astype(np.intp)

    view_tags = property(
        attrgetter("_view_tags"), doc="What the view was tagged with; None if nothing."
    )


@layer("shuffled")
class ShuffledDatasetIterator(DatasetIteratorView):
    """Every sample of ``dataset_iterator`` once, in an order that ``seed``, ``epoch`` and their number alone decide.

    The order is a :class:`~data_stack.dataset.randomness.KeyedPermutation`: any position in
    constant time, and no array of
    positions for more than 65,536 samples (4 bytes each for fewer). It is the same on every machine and in every version.

    Args:
        dataset_iterator: the samples; it stays the caller's to close. Nothing is read.
        seed: any integer.
        epoch: number of the order, from 0; see ``at_epoch``.

    Raises:
        ConfigError: ``seed`` or ``epoch`` is not an integer, or ``epoch`` negative.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, seed: int, *, epoch: int = 0) -> None:
        draw = check_draw("shuffled", seed, epoch)
        super().__init__(
            dataset_iterator, KeyedPermutation(len(as_iterator(dataset_iterator)), draw.key)
        )
        self._made_with = {"seed": draw.seed, "epoch": draw.epoch}
        self._noted = f" shuffled with seed {draw.seed}"


class RearrangedAccess(SampleAccess):
    """Access to the samples of ``source`` at ``positions``: a view, a shuffle, a shard, a fold.

    Positions are composed once, so that a view of a view reads from the bottom directly.

    Args:
        source: what is looked through.
        positions: in ``source``; a range or a formula stays such.
    """

    def __init__(self, source: SampleAccess, positions: Positions) -> None:
        self._source, inner = source.unwrap()
        self._positions = chosen = positions if inner is None else compose(positions, inner)
        self._take = chosen.take if isinstance(chosen, ComputedPositions) else partial(take, chosen)
        # a memoryview returns an int in half the time of an array's item()
        self._at = at = chosen.data if isinstance(chosen, np.ndarray) else chosen
        self._read = read = self._source.sample
        self.n_samples = len(chosen)
        # a closure takes two thirds of the time of a method
        self.sample = lambda position: read(at[position])  # type: ignore[method-assign]

    fixed_columns = property(attrgetter("_source.fixed_columns"))
    releases_gil = property(attrgetter("_source.releases_gil"))
    prefers_blocks = property(attrgetter("_source.prefers_blocks"))
    stacks_samples = property(attrgetter("_source.stacks_samples"))
    n_at_once = property(attrgetter("_source.n_at_once"))

    def sample(self, position: int) -> Any:
        return self._read(self._at[position])

    def values_of_sample(self, position: int, keys: Sequence[int | str]) -> list[Any] | None:
        return self._source.values_of_sample(self._at[position], keys)

    def samples(self, positions: IndexArrayOfInts) -> list[Any]:
        return self._source.samples(self._take(positions))

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        return self._source.batch(self._take(positions))

    def columns(
        self, keys: Sequence[int | str], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        wanted = as_index_array(self._positions) if positions is None else self._take(positions)
        return self._source.columns(keys, wanted)

    def each(self, key: int | str, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        return self._source.each(key, self._take(positions))

    def distinct_values(
        self, key: int | str, positions: IndexArrayOfInts | None = None
    ) -> DistinctValues | None:
        wanted = as_index_array(self._positions) if positions is None else self._take(positions)
        return self._source.distinct_values(key, wanted)

    def iterate(self, start: int, stop: int) -> Iterator[Any]:
        read = self._read
        for first in range(
            start, stop, _POSITIONS_AT_ONCE
        ):  # as Python ints, but never all of them at once
            block = range(first, min(first + _POSITIONS_AT_ONCE, stop))
            for position in as_index_array(compose(block, self._positions)).tolist():
                yield read(position)

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[int | str] | None = None
    ) -> Batch | None:
        chosen = self._positions
        is_run = isinstance(chosen, range) and chosen.step == 1
        return self._source.runs(self._take(starts), length, keys) if is_run else None

    def blocks(self) -> npt.NDArray[np.int64] | None:
        """Those of the source, as far as its samples are here, if they are in its order."""
        return blocks_at(self._positions, self._source.blocks())

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        self._source.prefetch(self._take(positions), keys)

    def locate(self, position: int) -> str | None:
        return self._source.locate(int(self._at[position]))

    def unwrap(self) -> tuple[SampleAccess, Positions | None]:
        return self._source, self._positions

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        return self._source.declare_columns()


def walk_stack(top: Any, below_of: Callable[[Any], list[Any]]) -> Iterator[tuple[Any, list[Any]]]:
    """The layers of a stack, each once, with the layers that it is stacked on, which come first; without recursion.

    Raises:
        ConfigError: a layer is stacked on itself.
    """
    done: dict[int, Any] = {}  # keeps the objects, so that no other object gets one of these ids
    below = below_of(top)
    pending = {id(top): (top, below, iter(below))}
    while pending:
        layer, below, left = next(reversed(pending.values()))
        following = next((each for each in left if id(each) not in done), done)
        if following is done:
            done[pending.popitem()[0]] = layer
            yield layer, below
            continue
        if id(following) in pending:
            kind = f"{type(following).__module__}.{type(following).__qualname__}"
            raise ConfigError(
                f"{kind} is stacked on itself: its underlying_iterators lead back to it"
            )
        below = below_of(following)
        pending[id(following)] = following, below, iter(below)


def at_epoch(iterator: DatasetIteratorIF, epoch: int) -> DatasetIteratorIF:
    """The same stack with its random layers drawn for another epoch.

    Layers below which nothing is random are shared with ``iterator``, not made again; if nothing at all is random, the answer
    is ``iterator``. A layer that reads when it is made (filtered, sorted, balanced, in memory …) reads again if what lies
    below it changes. A dataset that a repository has loaded is taken as it is.

    Args:
        iterator: any stack.
        epoch: at least 0; a stack is made for epoch 0 unless it says otherwise.

    Raises:
        ConfigError: ``epoch`` is not such a number, or an iterator of a class that is not of data_stack is stacked on something
            random.
    """
    number = check_integer("an epoch", epoch, at_least=0)
    drawn: dict[int, Any] = {}
    for each, below in walk_stack(iterator, _drawn_from):
        new, arguments = [drawn[id(one)] for one in below], _arguments_of(each)
        if _is_random(arguments) and arguments["epoch"] != number:
            arguments = {**arguments, "epoch": number}
        elif all(one is other for one, other in zip(new, below, strict=True)):
            drawn[id(each)] = each
            continue
        if "_layer_name" not in vars(type(each)):
            kind = f"{type(each).__module__}.{type(each).__qualname__}"
            raise ConfigError(
                f"{kind} cannot be made again for another epoch: put it below the layers that are random"
            )
        drawn[id(each)] = each._redrawn(new, arguments)
    return drawn[id(iterator)]  # type: ignore[no-any-return]  # an iterator


def has_random_layers(iterator: DatasetIteratorIF) -> bool:
    """Whether :func:`at_epoch` makes another stack for another epoch; reads no sample."""
    return any(_is_random(_arguments_of(each)) for each, _ in walk_stack(iterator, _drawn_from))


def list_draws(iterator: DatasetIteratorIF) -> list[Any]:
    """The layers of a stack that hold samples of random layers in memory.

    Pickled, each leaves behind what it was read from, without which :func:`at_epoch` cannot draw it again.
    """
    random: dict[int, Any] = {}
    for each, below in walk_stack(iterator, _drawn_from):
        if _is_random(_arguments_of(each)) or any(id(one) in random for one in below):
            random[id(each)] = each
    return [each for each in random.values() if vars(type(each)).get("_layer_name") == "in_memory"]


def _drawn_from(iterator: Any) -> list[Any]:
    """What a layer draws from: nothing, where a repository has loaded it."""
    # a client's wrapper may forward attributes; the origin of what it wraps is not its own
    origin = (
        getattr(iterator, "__dict__", {}).get("_origin")
        if isinstance(iterator, InformedDatasetIteratorIF)
        else None
    )
    return (
        list(iterator._stack_on() or ())
        if isinstance(iterator, DatasetIteratorIF) and not isinstance(origin, Mapping)
        else []
    )


def _arguments_of(iterator: Any) -> Mapping[str, Any]:
    is_layer = isinstance(iterator, DatasetIteratorIF) and "_layer_name" in vars(type(iterator))
    return iterator._arguments() if is_layer else {}


def _is_random(arguments: Mapping[str, Any]) -> bool:
    return "epoch" in arguments and arguments.get("seed", 0) is not None


@layer("informed")
class InformedDatasetIterator(AccessedDatasetIterator, InformedDatasetIteratorIF):
    """The samples of ``dataset_iterator``, of the dataset that ``dataset_meta`` describes.

    It adds no layer of its own: ``underlying_iterators`` are those of ``dataset_iterator``, and what only that has, such as the
    ``indices`` of a view or ``fill`` of a stored cache, is found here too. A slice is a view with the same meta.

    Args:
        dataset_iterator: the samples; it stays the caller's to close.
        dataset_meta: what is known of them.
        origin: plain data by which the samples can be had again, as a repository puts it: the dataset's name, version, split
            and options. None if there is none; see :meth:`recipe`.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        dataset_meta: DatasetMetaIF,
        *,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        self._origin = None if origin is None else dict(origin)
        self._dataset_iterator, self._dataset_meta = dataset_iterator, dataset_meta
        self._noted = getattr(dataset_iterator, "_noted", "")
        own_access(self)  # now: what has no samples is refused here

    if not TYPE_CHECKING:  # a type checker is not to believe in every name

        def __getattr__(self, name: str) -> Any:
            """What only the wrapped iterator has, such as the ``indices`` of a view or ``fill`` of a stored cache."""
            # Private names and protocols are asked of this very object, and while it is unpickled nothing is wrapped yet.
            wrapped = vars(self).get("_dataset_iterator")
            if not name.startswith("_") and hasattr(wrapped, name):
                return getattr(wrapped, name)
            raise missing_attribute(self, name)

    def make_access(self) -> SampleAccess:
        below = access_to(as_iterator(self._dataset_iterator))
        return NamedAccess(below, partial(column_key_by, self._dataset_meta, below))

    def _arguments(self) -> dict[str, Any]:
        return {"dataset_meta": self._dataset_meta, "origin": self._origin}

    def _stack_on(self) -> list[DatasetIteratorIF]:
        return [self._dataset_iterator]

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """What the wrapped iterator is stacked on."""
        return self._dataset_iterator.underlying_iterators

    dataset_meta = property(attrgetter("_dataset_meta"), doc="The meta given.")


class NamedAccess(OneToOneAccess):
    """Access to the same samples, whose columns may also be named as in a meta.

    Args:
        below: the samples.
        key_of: returns the column's position for a name, and any other key unchanged.
    """

    def __init__(self, below: SampleAccess, key_of: Callable[[int | str], int | str]) -> None:
        super().__init__(below, keeps_values=True)
        self._key_of = key_of
        self.stacks_samples = below.stacks_samples
        # no calls of their own: these samples are those below
        self.sample = below.sample  # type: ignore[method-assign]
        self.samples = below.samples  # type: ignore[method-assign]
        self.batch = below.batch  # type: ignore[method-assign]
        self.iterate = below.iterate  # type: ignore[method-assign]
        self.unwrap = below.unwrap  # type: ignore[method-assign]
        self.declare_columns = below.declare_columns  # type: ignore[method-assign]

    def sample(self, position: int) -> Any:
        return self.below.sample(position)

    def values_of_sample(self, position: int, keys: Sequence[int | str]) -> list[Any] | None:
        return self.below.values_of_sample(position, [self._key_of(key) for key in keys])

    def columns(
        self, keys: Sequence[int | str], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        return self.below.columns([self._key_of(key) for key in keys], positions)

    def distinct_values(
        self, key: int | str, positions: IndexArrayOfInts | None = None
    ) -> DistinctValues | None:
        return self.below.distinct_values(self._key_of(key), positions)

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[int | str] | None = None
    ) -> Batch | None:
        return self.below.runs(
            starts, length, None if keys is None else [self._key_of(key) for key in keys]
        )

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        self.below.prefetch(
            positions, None if keys is None else [self._key_of(key) for key in keys]
        )
