"""Granular's sources: functions of a step that give a sample, to be stacked and handed to a loader."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, SupportsIndex, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import AccessedDatasetIterator, DatasetIteratorIF, OneToOneAccess, SampleAccess, access_to
from data_stack.dataset.iterator.adapted import Indexable, as_iterator
from data_stack.dataset.iterator.indices import check_integer
from data_stack.dataset.iterator.layers.combined import CombinedDatasetIterator
from data_stack.dataset.iterator.layers.mixed import draw_turns, exact_parts
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.iterator.registry import layer
from data_stack.dataset.positions import ComputedPositions, IndexArrayOfInts
from data_stack.dataset.randomness.keyed import hash_array, high_product_array
from data_stack.dataset.randomness.seeds import derive_generator, derive_seed
from data_stack.exception import ConfigError
from data_stack.loader.orders import epoch_permutation
from data_stack.util.functions import has_parameter

_ENDLESS = 2**48
"""The length of what has no end: at a million samples a second, nine years; and thousands of such lengths can be added."""

# Of a mix so many steps are computed together, in whole blocks.
_STEPS_AT_ONCE = 1 << 12

AnySource = Union["StepSource", DatasetIteratorIF, Indexable, Callable[[int], Any]]
"""What a source can be stacked on: another source; an iterator, or an object with ``len`` and ``[i]``, whose sample i is that of
step i; or a function of a step (or of an index, if a length is given)."""


class StepSource(AccessedDatasetIterator):
    """A sequence of samples, as a rule an endless one: a pure function of a step, and an iterator over all its steps.

    A subclass defines ``__call__``; one that can read many steps at once ``read_batch``, too. To reach worker processes it
    must pickle, and its samples must depend on its arguments and the step alone.
    """

    _keeps_access = False

    def __call__(self, step: int) -> Any:
        """The sample of a step, which is at least 0.

        Raises:
            DatasetOutOfBoundsError: the source has ended before.
        """
        return self[check_integer("a step", step, at_least=0)]

    @property
    def n_steps(self) -> int | None:
        """How many steps there are; None if it has no end. Its length is 2**48 then."""
        return None

    def __len__(self) -> int:
        return _ENDLESS if self.n_steps is None else self.n_steps

    def make_access(self) -> SampleAccess:
        return _CallAccess(self)

    def __repr__(self) -> str:
        arguments = [f"{name}={value!r:.60}" for name, value in self._arguments().items() if value is not None]
        return f"{type(self).__name__}({', '.join([*map(repr, self.underlying_iterators), *arguments])})"


class _CallAccess(SampleAccess):
    """Access to the steps of a source, one by one."""

    def __init__(self, source: StepSource) -> None:
        self._source, self.n_samples = source, len(source)

    def sample(self, position: int) -> Any:
        return self._source(position)


@layer("steps")
class _Function(StepSource):
    """The samples that a function returns for each step, called in any order, in any thread or process."""

    def __init__(self, function: Callable[[int], Any]) -> None:
        self._function = function

    def __call__(self, step: int) -> Any:
        return self._function(step)

    def _arguments(self) -> dict[str, Any]:
        return {"function": self._function}


class _Routed(DatasetIteratorView, StepSource):
    """A source whose steps are steps of other sources: a view of their concatenation.

    Args:
        sources: the other sources.
        positions: of the steps; their length is the number of steps.
        arguments: the other arguments, for a recipe.
    """

    _keeps_access = True

    def __init__(self, sources: Sequence[DatasetIteratorIF], positions: ComputedPositions, **arguments: Any) -> None:
        self._n_steps = None if len(positions) == _ENDLESS else len(positions)
        super().__init__(CombinedDatasetIterator(sources) if self._takes_list else sources[0], positions)
        self._made_with = arguments

    @property
    def n_steps(self) -> int | None:
        return self._n_steps

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The sources."""
        return self._dataset_iterator.underlying_iterators if self._takes_list else [self._dataset_iterator]


class _Steps(ComputedPositions):
    """Positions that a function of steps returns."""

    def __init__(self, function: Callable[[IndexArrayOfInts], IndexArrayOfInts], length: int = _ENDLESS) -> None:
        self._function, self._length = function, length

    def __len__(self) -> int:
        return self._length

    def take(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        return self._function(indices)


@layer("epochs")
class Epochs(_Routed):
    """All samples of ``source`` in one order, then all in another order, without an end.

    Epoch e has the order that ``Loader(source, …, shuffle=True, seed=seed)`` gives its epoch e, and ``source.shuffle(seed,
    epoch=e)``: any step is found in constant time, and no list is kept.

    Args:
        source: what has samples, see :data:`AnySource`.
        length: of an epoch; None for all that ``source`` has.
        shuffle: False for the order of ``source`` in all epochs.
        seed: any integer. (Granular 0.24 ignores it.)

    Raises:
        ConfigError: ``source`` is no source; it has no end or is empty, and there is no length; or it has fewer samples.
    """

    def __init__(
        self, source: AnySource, length: SupportsIndex | None = None, shuffle: bool = True, seed: SupportsIndex = 0
    ) -> None:
        below, checked_seed = _source(source), check_integer("the seed of Epochs", seed)
        positions = functools.partial(_in_epochs, _length_of(below, length, "Epochs"), checked_seed if shuffle else None)
        super().__init__([below], _Steps(positions), length=length, shuffle=bool(shuffle), seed=checked_seed)


def _in_epochs(length: int, seed: int | None, steps: IndexArrayOfInts) -> IndexArrayOfInts:
    """``range(length)`` repeated, in another order each time; in order if there is no seed."""
    epochs, places = np.divmod(steps, length)
    if seed is None:
        return places
    found = np.empty(len(steps), dtype=np.int64)
    for epoch in np.unique(epochs).tolist():
        which = epochs == epoch
        found[which] = epoch_permutation(length, seed, epoch).take(places[which])
    return found


@layer("sampled")
class Sample(_Routed):
    """Samples of ``source`` drawn with replacement, each draw independent of the others and a function of seed and step alone.

    Args:
        source: what has samples, see :data:`AnySource`.
        length: how many of them to draw from; None for all that ``source`` has.
        seed: any integer.

    Raises:
        ConfigError: as for :class:`Epochs`.
    """

    def __init__(self, source: AnySource, length: SupportsIndex | None = None, seed: SupportsIndex = 0) -> None:
        below, checked_seed = _source(source), check_integer("the seed of Sample", seed)
        positions = functools.partial(_draw, _length_of(below, length, "Sample"), derive_seed("sample", checked_seed))
        super().__init__([below], _Steps(positions), length=length, seed=checked_seed)


def _draw(length: int, key: int, steps: IndexArrayOfInts) -> IndexArrayOfInts:
    """Positions of ``range(length)`` drawn with replacement."""
    return high_product_array(hash_array(key, steps), np.array(length, dtype=np.uint64)).astype(np.int64)


@layer("truncated")
class Truncate(_Routed):
    """The first ``limit`` samples of ``source``, repeated without an end.

    Args:
        source: see :data:`AnySource`.
        limit: at least 1; of a source with fewer samples, all of them.
        length: how many samples of ``source`` count; None for all.

    Raises:
        ConfigError: ``source`` is no source or empty, or ``limit`` is not positive.
    """

    def __init__(self, source: AnySource, limit: SupportsIndex, length: SupportsIndex | None = None) -> None:
        below, most = _source(source), check_integer("the limit of Truncate", limit, at_least=1)
        n_samples = _length_of(below, len(below) if length is None else length, "Truncate")
        positions = functools.partial(_in_epochs, min(most, n_samples), None)
        super().__init__([below], _Steps(positions), limit=most, length=length)


@layer("step_transform")
class Transform(StepSource):
    """``fn`` of each sample of ``source``.

    Args:
        source: see :data:`AnySource`; it ends where that ends.
        fn: ``fn(sample)``. If it has a parameter ``seed`` (or ``**keywords``), that is ``[seed, step]``, as with Granular: what
            ``numpy.random.default_rng`` takes. If it has a parameter ``rng``, that is a ``numpy.random.Generator`` that seed and
            step decide.
        seed: any integer; for ``default_rng`` none that is negative.

    Raises:
        ConfigError: ``source`` is no source, or ``fn`` cannot be called.
    """

    _keeps_access = True

    def __init__(self, source: AnySource, fn: Callable[..., Any], seed: SupportsIndex = 0) -> None:
        if not callable(fn):
            raise ConfigError(f"a transform needs a function of a sample, got {fn!r:.80}")
        self._source, self._fn, self._seed = _source(source), fn, check_integer("the seed of Transform", seed)

    @property
    def n_steps(self) -> int | None:
        return _n_steps_of(self._source)

    def make_access(self) -> SampleAccess:
        return _TransformedAccess(access_to(self._source), self._fn, self._seed)

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The source."""
        return [self._source]

    def _arguments(self) -> dict[str, Any]:
        return {"fn": self._fn, "seed": self._seed}


class _TransformedAccess(OneToOneAccess):
    def __init__(self, below: SampleAccess, fn: Callable[..., Any], seed: int) -> None:
        super().__init__(below)
        self._fn, self._seed, self._key = fn, seed, derive_seed("transform step", seed)
        self._takes_seed, self._takes_rng = has_parameter(fn, "seed", any_keywords=True), has_parameter(fn, "rng")

    def sample(self, position: int) -> Any:
        return self._transform(self.below.sample(position), position)

    def samples(self, positions: IndexArrayOfInts) -> list[Any]:
        return list(map(self._transform, self.below.samples(positions), positions.tolist()))

    def _transform(self, sample: Any, step: int) -> Any:
        keywords: dict[str, Any] = {}
        if self._takes_seed:
            keywords["seed"] = [self._seed, step]
        if self._takes_rng:
            keywords["rng"] = derive_generator(self._key, step)
        return self._fn(sample, **keywords)


@layer("in_turn")
class Interleave(_Routed):
    """One sample of each source in turn: step t is step ``t // k`` of source ``t % k``, for k sources.

    It ends where the first of them has no sample for its turn.

    Args:
        sources: at least one, see :data:`AnySource`.

    Raises:
        ConfigError: ``sources`` is empty, or one of them is no source.
    """

    _takes_list = True

    def __init__(self, sources: Sequence[AnySource]) -> None:
        below = _list_of(sources, "Interleave")
        lengths = [len(each) for each in below]
        n_steps = min(_ENDLESS, *(length * len(lengths) + place for place, length in enumerate(lengths)))
        super().__init__(below, _Steps(functools.partial(_in_turn, np.cumsum([0, *lengths[:-1]])), n_steps))


def _in_turn(starts: IndexArrayOfInts, steps: IndexArrayOfInts) -> IndexArrayOfInts:
    """Positions of runs that begin at ``starts``, one of each in turn."""
    inner, runs = np.divmod(steps, len(starts))
    found: IndexArrayOfInts = starts[runs] + inner
    return found


@layer("mix")
class Mix(_Routed):
    """Samples of several sources in stated proportions, in a drawn order.

    Each source gives its steps 0, 1, 2 … in this order, without gaps or repeats. (Granular 0.24 asks for the step
    of the mix, so that a mix of two epochs of 100 samples gives 155 different ones in 200 steps.) After each *block* of steps,
    which is 1 divided by the smallest part of all weights, every source has come as often as its weight says, up to one sample.
    Seed and step alone decide all of it.

    Args:
        sources: at least one, see :data:`AnySource`. Those with a weight must not end: put ``Epochs(…)`` around them.
        weights: a number for each, finite and not negative, of any sum; None for all the same.
        seed: any integer.

    Raises:
        ConfigError: ``sources`` is empty, one of them is no source or ends, or the weights are not allowed, see
            :func:`~data_stack.dataset.iterator.layers.mixed.exact_parts`.
    """

    _takes_list = True

    def __init__(
        self,
        sources: Sequence[AnySource],
        weights: Sequence[float] | npt.ArrayLike | None = None,
        seed: SupportsIndex = 0,
    ) -> None:
        below, checked_seed = _list_of(sources, "Mix"), check_integer("the seed of Mix", seed)
        numbers, parts = exact_parts([1] * len(below) if weights is None else weights, len(below), "weight", "source")
        for place, (source, part) in enumerate(zip(below, parts, strict=True)):
            if part and _n_steps_of(source) is not None:
                raise ConfigError(
                    f"source {place} of a mix ends after {len(source):,} samples, a mix does not; "
                    f"put Epochs(…) or Sample(…) around it"
                )
        positions = _MixedTurns([len(each) for each in below], parts, derive_seed("mix", checked_seed))
        super().__init__(below, _Steps(positions), weights=None if weights is None else numbers, seed=checked_seed)


class _MixedTurns:
    """Positions in runs of ``lengths``, each run's in its order, and each run in its part of all."""

    def __init__(self, lengths: Sequence[int], parts: Sequence[Fraction], key: int) -> None:
        self._starts, self._parts, self._key = np.cumsum([0, *lengths[:-1]]), parts, key
        self._block = math.ceil(1 / min(part for part in parts if part))
        self._last: tuple[int, IndexArrayOfInts] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}

    def __call__(self, steps: IndexArrayOfInts) -> IndexArrayOfInts:
        n_blocks = -(-_STEPS_AT_ONCE // self._block)
        tables, places = np.divmod(steps.astype(np.int64, copy=False), n_blocks * self._block)
        positions = np.empty(len(steps), dtype=np.int64)
        for table in np.unique(tables).tolist():
            last = self._last  # one attribute: threads need no lock
            if last is None or last[0] != table:
                runs, numbers = draw_turns(self._parts, self._block, self._key, table * n_blocks, n_blocks)
                self._last = last = (table, self._starts[runs] + numbers)
            which = tables == table
            positions[which] = last[1][places[which]]
        return positions


def _source(given: AnySource) -> DatasetIteratorIF:
    """A source as an iterator."""
    if isinstance(given, DatasetIteratorIF):
        return given
    if callable(given):
        return _Function(given)
    if hasattr(given, "__len__") and hasattr(given, "__getitem__"):
        return as_iterator(given)
    if hasattr(given, "__getitem__"):
        return _Function(given.__getitem__)
    raise ConfigError(f"expected an iterator, a function of a step, or an object with [i], got {given!r:.80}")


def _list_of(sources: Sequence[AnySource], name: str) -> list[DatasetIteratorIF]:
    given: Any = sources  # at run time, anything
    is_list = isinstance(given, Sequence) and not isinstance(given, (DatasetIteratorIF, str, bytes, bytearray, memoryview, range))
    if not is_list or callable(given) or not len(given):
        raise ConfigError(f"{name} takes a list of sources, at least one, got {sources!r:.80}")
    return [_source(each) for each in sources]


def _n_steps_of(source: DatasetIteratorIF) -> int | None:
    return source.n_steps if isinstance(source, StepSource) else len(source)


def _length_of(source: DatasetIteratorIF, given: SupportsIndex | None, name: str) -> int:
    """The given length, or else that of the source."""
    n_steps = _n_steps_of(source)
    if given is None and n_steps is None:
        raise ConfigError(f"{name} must know how many samples there are, which {source!r:.80} does not say: give it length=")
    if n_steps == 0:
        raise ConfigError(f"{name} was given a source without samples: {source!r:.80}")
    return check_integer(f"the length of {name}", len(source) if given is None else given, at_least=1, at_most=len(source))
