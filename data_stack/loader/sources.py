"""Granular's sources: functions of a step that give a sample, to be stacked and handed to a loader."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, SupportsIndex, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorIF, access_to
from data_stack.dataset.iterator.contract import Indexable, adapted
from data_stack.dataset.iterator.indices import checked_integer
from data_stack.dataset.iterator.mixed import exact_parts
from data_stack.dataset.iterator.stacking import Batch, join_batches, reordered, stack_samples
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness.keyed import Uint64Array, hashed, hashed_array, high_product_array, permuted_array
from data_stack.dataset.randomness.seeds import derived_generator, derived_seed
from data_stack.exception import ConfigError, DatasetOutOfBoundsError
from data_stack.loader.orders import epoch_permutation
from data_stack.loader.steps import KINDS, StepIterator, StepSource
from data_stack.util.functions import has_parameter

__all__ = ["AnySource", "Epochs", "Interleave", "Mix", "Sample", "StepIterator", "StepSource", "Transform", "Truncate"]

# Of a mix so many steps are computed together, in whole blocks.
_STEPS_AT_ONCE = 1 << 12

# Each of the sources that are mixed is in an epoch of its own.
_recent_permutation = functools.lru_cache(maxsize=16)(epoch_permutation)


AnySource = Union[StepSource, DatasetIteratorIF, Indexable, Callable[[int], Any]]
"""What a source can be stacked on: another one; an iterator or whatever has ``len`` and ``[i]``, whose sample i is that of step
i; or a function of a step (or of an index, where a length is given)."""


class _OurSource(StepSource):
    """A source on some others: each of its steps is a step of one of them. A subclass says which.

    Args:
        sources: see :data:`AnySource`.
        arguments: what it was made with besides, for a recipe.
    """

    _takes_list = False

    def __init__(self, sources: Sequence[AnySource], **arguments: Any) -> None:
        if isinstance(sources, (StepSource, DatasetIteratorIF)) or callable(sources):
            raise ConfigError(f"{type(self).__name__} is given a list of sources, not {sources!r:.80}")
        self._sources = [_source(each) for each in sources]
        if not self._sources:
            raise ConfigError(f"{type(self).__name__} needs at least one source; it was given none")
        self._given = arguments

    def _route(self, steps: IndexArrayOfInts) -> tuple[IndexArrayOfInts | None, IndexArrayOfInts]:
        """For each step which source (None: the first one), and which step of it; both of shape ``(n,)``."""
        return None, steps

    def __call__(self, step: int) -> Any:
        checked = checked_integer("a step", step, at_least=0)
        numbers, inner = self._route(np.array([checked], dtype=np.int64))
        return self._sources[0 if numbers is None else int(numbers[0])](int(inner[0]))

    def read_samples(self, steps: IndexArrayOfInts) -> list[Any]:
        numbers, inner = self._route(steps)
        if numbers is None:
            return self._sources[0].read_samples(inner)
        samples: list[Any] = [None] * len(steps)
        for number in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == number)
            for place, sample in zip(places.tolist(), self._sources[number].read_samples(inner[places]), strict=True):
                samples[place] = sample
        return samples

    def read_steps(self, steps: IndexArrayOfInts) -> Batch:
        numbers, inner = self._route(steps)
        if numbers is None:
            return self._sources[0].read_steps(inner)
        present = np.unique(numbers).tolist()
        places = [np.flatnonzero(numbers == number) for number in present]
        batches = [self._sources[number].read_steps(inner[its]) for number, its in zip(present, places, strict=True)]
        back = np.empty(len(steps), dtype=np.intp)
        back[np.concatenate(places)] = np.arange(len(steps))
        return reordered(join_batches(batches), back)

    def _stacked_on(self) -> list[DatasetIteratorIF]:
        return [source.iterator if isinstance(source, _Indexed) else source.as_iterator() for source in self._sources]

    def _arguments(self) -> dict[str, Any]:
        return self._given

    @classmethod
    def _rebuilt(cls, sources: list[Any], arguments: Mapping[str, Any]) -> StepSource:
        return cls(sources, **arguments) if cls._takes_list else cls(*sources, **arguments)

    def __repr__(self) -> str:
        arguments = [f"{name}={value!r:.60}" for name, value in self._arguments().items() if value is not None]
        return f"{type(self).__name__}({', '.join([*map(repr, self._sources), *arguments])})"


class _Indexed(StepSource):
    """Sample i of an iterator at step i."""

    def __init__(self, iterator: DatasetIteratorIF) -> None:
        self.iterator = iterator

    @property
    def n_steps(self) -> int:
        return len(self.iterator)

    def __call__(self, step: int) -> Any:
        return self.read_samples(np.array([step]))[0]

    def read_samples(self, steps: IndexArrayOfInts) -> list[Any]:
        return self.iterator.__getitems__(self._checked(steps))

    def read_steps(self, steps: IndexArrayOfInts) -> Batch:
        return access_to(self.iterator).batch(self._checked(steps))

    def _checked(self, steps: IndexArrayOfInts) -> IndexArrayOfInts:
        if (step := int(steps.max(initial=0))) >= len(self.iterator):
            raise DatasetOutOfBoundsError(
                f"step {step} is asked for of an iterator of {len(self.iterator):,} samples: "
                f"put Epochs(…) or Sample(…) around it, which have no end"
            )
        return steps

    def __repr__(self) -> str:
        return repr(self.iterator)


class _Function(StepSource):
    """What a function gives for each step; it is called in any order, in any thread or process."""

    def __init__(self, function: Callable[[int], Any]) -> None:
        self._function = function

    def __call__(self, step: int) -> Any:
        return self._function(checked_integer("a step", step, at_least=0))

    def _arguments(self) -> dict[str, Any]:
        return {"function": self._function}

    @classmethod
    def _rebuilt(cls, sources: list[Any], arguments: Mapping[str, Any]) -> StepSource:
        return cls(**arguments)

    def __repr__(self) -> str:
        return f"{self._function!r:.60}"


class Epochs(_OurSource):
    """All samples of ``source`` in one order, then all in another one, without an end.

    Epoch e has the order that ``Loader(source, …, shuffle=True, seed=seed)`` gives its epoch e, and ``source.shuffle(seed,
    epoch=e)``: any step is found in constant time, and no list is kept.

    Args:
        source: what has samples, see :data:`AnySource`.
        length: of an epoch; None for all that ``source`` has.
        shuffle: False for the order of ``source`` in all epochs.
        seed: any integer. (Granular 0.24 ignores it.)

    Raises:
        ConfigError: ``source`` is none; or it has no end, or is empty, so that it needs a length; or has fewer samples than that.
    """

    def __init__(
        self, source: AnySource, length: SupportsIndex | None = None, shuffle: bool = True, seed: SupportsIndex = 0
    ) -> None:
        super().__init__([source], length=_checked_length(length), shuffle=bool(shuffle), seed=_checked_seed("Epochs", seed))
        self._length = _length_of(self._sources[0], self._given["length"], "Epochs")

    def _route(self, steps: IndexArrayOfInts) -> tuple[IndexArrayOfInts | None, IndexArrayOfInts]:
        epochs, places = np.divmod(steps, self._length)
        if not self._given["shuffle"]:
            return None, places
        taken = np.empty(len(steps), dtype=np.int64)
        for epoch in np.unique(epochs).tolist():
            which = epochs == epoch
            taken[which] = _recent_permutation(self._length, self._given["seed"], epoch).taken(places[which])
        return None, taken


class Sample(_OurSource):
    """Samples of ``source`` drawn with replacement, each draw independent of the others and a function of seed and step alone.

    Args:
        source: what has samples, see :data:`AnySource`.
        length: how many of them to draw from; None for all that ``source`` has.
        seed: any integer.

    Raises:
        ConfigError: as for :class:`Epochs`.
    """

    def __init__(self, source: AnySource, length: SupportsIndex | None = None, seed: SupportsIndex = 0) -> None:
        super().__init__([source], length=_checked_length(length), seed=_checked_seed("Sample", seed))
        self._length = _length_of(self._sources[0], self._given["length"], "Sample")
        self._key = derived_seed("sample", self._given["seed"])

    def _route(self, steps: IndexArrayOfInts) -> tuple[IndexArrayOfInts | None, IndexArrayOfInts]:
        drawn = high_product_array(hashed_array(self._key, steps), np.array(self._length, dtype=np.uint64))
        return None, drawn.astype(np.int64)


class Truncate(_OurSource):
    """The first ``limit`` samples of ``source``, again and again.

    Args:
        source: see :data:`AnySource`.
        limit: at least 1.
        length: how many ``source`` has, if that is less than ``limit``; None for what it says itself.

    Raises:
        ConfigError: ``source`` is none or empty, or ``limit`` not positive.
    """

    def __init__(self, source: AnySource, limit: SupportsIndex, length: SupportsIndex | None = None) -> None:
        super().__init__(
            [source], limit=checked_integer("the limit of Truncate", limit, at_least=1), length=_checked_length(length)
        )
        lengths = [each for each in (*self._given.values(), self._sources[0].n_steps) if each is not None]
        self._limit = min(lengths)
        if self._limit == 0:
            raise ConfigError("Truncate was given a source without samples")

    def _route(self, steps: IndexArrayOfInts) -> tuple[IndexArrayOfInts | None, IndexArrayOfInts]:
        return None, steps % self._limit


class Transform(_OurSource):
    """``fn`` of each sample of ``source``.

    Args:
        source: see :data:`AnySource`; it ends where that ends.
        fn: ``fn(sample)``. If it has a parameter ``seed`` (or ``**keywords``), that is ``[seed, step]``, as with Granular: what
            ``numpy.random.default_rng`` takes. If it has a parameter ``rng``, that is a ``numpy.random.Generator`` that seed and
            step decide.
        seed: any integer; for ``default_rng`` none that is negative.

    Raises:
        ConfigError: ``source`` is none, or ``fn`` cannot be called.
    """

    def __init__(self, source: AnySource, fn: Callable[..., Any], seed: SupportsIndex = 0) -> None:
        if not callable(fn):
            raise ConfigError(f"a transform needs a function of a sample, got {fn!r:.80}")
        super().__init__([source], fn=fn, seed=_checked_seed("Transform", seed))
        self._takes_seed, self._takes_rng = has_parameter(fn, "seed", any_keywords=True), has_parameter(fn, "rng")
        self._key = derived_seed("transform step", self._given["seed"])

    @property
    def n_steps(self) -> int | None:
        return self._sources[0].n_steps

    def __call__(self, step: int) -> Any:
        return self._transformed(super().__call__(step), step)

    def read_samples(self, steps: IndexArrayOfInts) -> list[Any]:
        samples = super().read_samples(steps)
        return [self._transformed(sample, step) for sample, step in zip(samples, steps.tolist(), strict=True)]

    def read_steps(self, steps: IndexArrayOfInts) -> Batch:
        return stack_samples(self.read_samples(steps))

    def _transformed(self, sample: Any, step: int) -> Any:
        keywords: dict[str, Any] = {}
        if self._takes_seed:
            keywords["seed"] = [self._given["seed"], step]
        if self._takes_rng:
            keywords["rng"] = derived_generator(self._key, step)
        return self._given["fn"](sample, **keywords)


class Interleave(_OurSource):
    """One sample of each source in turn: step t is step ``t // k`` of source ``t % k``, for k sources.

    It ends where the first of them has no sample for its turn.

    Args:
        sources: at least one, see :data:`AnySource`.

    Raises:
        ConfigError: there is none, or one of them is no source.
    """

    _takes_list = True

    def __init__(self, sources: Sequence[AnySource]) -> None:
        super().__init__(sources)

    @property
    def n_steps(self) -> int | None:
        ends = [n * len(self._sources) + place for place, source in enumerate(self._sources) if (n := source.n_steps) is not None]
        return min(ends) if ends else None

    def _route(self, steps: IndexArrayOfInts) -> tuple[IndexArrayOfInts | None, IndexArrayOfInts]:
        inner, numbers = np.divmod(steps, len(self._sources))
        return numbers, inner


class Mix(_OurSource):
    """Samples of several sources in stated proportions, in a drawn order.

    Each source is asked for its steps 0, 1, 2 … in this order: none is left out or comes twice. (Granular 0.24 asks for the step
    of the mix, so that a mix of two epochs of 100 samples gives 155 different ones in 200 steps.) After each *block* of steps,
    which is 1 divided by the smallest part of all weights, every source has come as often as its weight says, up to one sample.
    Seed and step alone decide all of it.

    Args:
        sources: at least one, see :data:`AnySource`. None with a weight may end: put ``Epochs(…)`` around it.
        weights: a number for each, finite and not negative, of any sum; None for all the same.
        seed: any integer.

    Raises:
        ConfigError: there is no source, one of them is none or ends, or the weights are not allowed, see
            :func:`~data_stack.dataset.iterator.mixed.exact_parts`.
    """

    _takes_list = True

    def __init__(
        self,
        sources: Sequence[AnySource],
        weights: Sequence[float] | npt.ArrayLike | None = None,
        seed: SupportsIndex = 0,
    ) -> None:
        super().__init__(sources, weights=weights, seed=_checked_seed("Mix", seed))
        n_sources = len(self._sources)
        numbers, parts = exact_parts([1] * n_sources if weights is None else weights, n_sources, "weight", "source")
        self._given["weights"] = None if weights is None else numbers
        for place, (source, part) in enumerate(zip(self._sources, parts, strict=True)):
            if part and source.n_steps is not None:
                raise ConfigError(
                    f"source {place} of a mix ends after {source.n_steps:,} samples, a mix does not; "
                    f"put Epochs(…) or Sample(…) around it"
                )
        self._key = derived_seed("mix", self._given["seed"])
        self._block = math.ceil(1 / min(part for part in parts if part))
        # how much of all the first k sources have together, in units of 2**-64, rounded
        self._shares = [math.floor(share * 2**64 + Fraction(1, 2)) for share in accumulate(parts, initial=Fraction(0))]
        self._last: tuple[int, IndexArrayOfInts, IndexArrayOfInts] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}

    def _route(self, steps: IndexArrayOfInts) -> tuple[IndexArrayOfInts | None, IndexArrayOfInts]:
        n_blocks = -(-_STEPS_AT_ONCE // self._block)
        tables, places = np.divmod(steps.astype(np.int64, copy=False), n_blocks * self._block)
        numbers, inner = np.empty(len(steps), dtype=np.intp), np.empty(len(steps), dtype=np.int64)
        for table in np.unique(tables).tolist():
            last = self._last  # in one step: threads need no lock
            if last is None or last[0] != table:
                self._last = last = (table, *self._turns(table * n_blocks, n_blocks))
            which = tables == table
            numbers[which], inner[which] = last[1][places[which]], last[2][places[which]]
        return numbers, inner

    def _turns(self, first: int, n_blocks: int) -> tuple[IndexArrayOfInts, IndexArrayOfInts]:
        """For the steps of some blocks which source, and how many turns that had before.

        :class:`~data_stack.dataset.iterator.mixed.MixedDatasetIterator` divides its blocks by the same arithmetic, which its
        ``_bound`` proves. There the samples of a run come in a drawn order; here they are counted in the order of the steps.
        """
        block, n_sources = self._block, len(self._sources)
        # how many of the steps in the first blocks are of the first sources: shape (n_blocks + 1, n_sources + 1)
        rows = [[((first + b) * block * share + 2**63) >> 64 for share in self._shares] for b in range(n_blocks + 1)]
        bounds: npt.NDArray[np.int64] = np.array(rows, dtype=np.int64)
        ends = bounds[:, 1:] - bounds[:, :-1]  # how often each source came before each block
        counts = ends[1:] - ends[:-1]
        unshuffled = np.repeat(np.tile(np.arange(n_sources), n_blocks), counts.reshape(-1)).reshape(n_blocks, block)
        keys: Uint64Array = hashed_array(
            hashed(self._key, 0), np.repeat(np.arange(first, first + n_blocks, dtype=np.uint64), block)
        )
        drawn = permuted_array(block, keys, np.tile(np.arange(block, dtype=np.uint64), n_blocks)).astype(np.intp)
        sources = np.take_along_axis(unshuffled, drawn.reshape(n_blocks, block), axis=1)
        # sorted by source, the turns of each stand together in the order of the steps, in runs as long as its counts
        by_source = np.argsort(sources, axis=1, kind="stable")
        starts = np.cumsum(counts, axis=1) - counts - ends[:-1]
        numbers = np.empty((n_blocks, block), dtype=np.int64)
        np.put_along_axis(numbers, by_source, np.arange(block) - np.take_along_axis(starts, unshuffled, axis=1), axis=1)
        return sources.reshape(-1), numbers.reshape(-1)


KINDS.update(
    {kind.__name__.removeprefix("_"): kind for kind in (Epochs, _Function, Interleave, Mix, Sample, Transform, Truncate)}
)


def _source(given: AnySource) -> StepSource:
    """What anybody may have given as a source."""
    if isinstance(given, StepSource):
        return given
    if isinstance(given, StepIterator):
        return given.source
    if isinstance(given, DatasetIteratorIF):
        return _Indexed(given)
    if callable(given):
        return _Function(given)
    if hasattr(given, "__len__") and hasattr(given, "__getitem__"):
        return _Indexed(adapted(given))
    if hasattr(given, "__getitem__"):
        return _Function(given.__getitem__)
    raise ConfigError(f"a source is a function of a step, or whatever has len() and [i], not {given!r:.80}")


def _checked_length(length: SupportsIndex | None) -> int | None:
    return None if length is None else checked_integer("the length of a source", length, at_least=1)


def _checked_seed(name: str, seed: SupportsIndex) -> int:
    return checked_integer(f"the seed of {name}", seed)


def _length_of(source: StepSource, given: int | None, name: str) -> int:
    """How many samples there are, by what was given or by what the source says."""
    n_steps = source.n_steps
    if given is None and n_steps is None:
        raise ConfigError(f"{name} must know how many samples there are, which {source!r:.80} does not say: give it length=")
    length = given if given is not None else n_steps
    if not length:
        raise ConfigError(f"{name} was given a source without samples: {source!r:.80}")
    if n_steps is not None and length > n_steps:
        raise ConfigError(f"{name} was given length={length:,} for a source of {n_steps:,} samples: {source!r:.80}")
    return length
