"""Granular's sources: functions of a step that give a sample, to be stacked and handed to a loader."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsIndex, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import AccessedDatasetIterator, ColumnKey, DatasetIteratorIF, SampleAccess, access_to
from data_stack.dataset.iterator.contract import Indexable, adapted
from data_stack.dataset.iterator.indices import checked_integer
from data_stack.dataset.iterator.registry import layer
from data_stack.dataset.iterator.stacking import Batch, Column, join_batches, reordered, stack_samples
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness.keyed import hashed, hashed_array, high_product, high_product_array
from data_stack.dataset.randomness.seeds import derived_generator, derived_seed
from data_stack.exception import ConfigError, DatasetOutOfBoundsError
from data_stack.loader.orders import epoch_permutation
from data_stack.loader.turns import Turns, checked_parts

__all__ = ["AnySource", "Epochs", "Interleave", "Mix", "Sample", "StepIterator", "StepSource", "Transform", "Truncate"]

_ENDLESS = 2**62
"""The length of an iterator over all steps of a source that has no end."""

# Each of the sources that are mixed is in an epoch of its own.
_recent_permutation = functools.lru_cache(maxsize=16)(epoch_permutation)


class StepSource(ABC):
    """A sequence of samples, as a rule an endless one: a pure function of a step.

    A subclass defines ``__call__``; one that can read many steps at once :meth:`read_steps`, too. To reach worker processes it
    must pickle, and what it does must depend on nothing but what it was made with and the step.
    """

    @abstractmethod
    def __call__(self, step: int) -> Any:
        """The sample of a step, which is at least 0.

        Raises:
            DatasetOutOfBoundsError: the source has ended before.
        """
        raise NotImplementedError

    @property
    def n_steps(self) -> int | None:
        """How many steps there are; None if it has no end."""
        return None

    def read_samples(self, steps: IndexArrayOfInts) -> list[Any]:
        """The samples of many steps.

        Args:
            steps: shape ``(n,)``, each in ``[0, n_steps)``.
        """
        return [self(step) for step in steps.tolist()]

    def read_steps(self, steps: IndexArrayOfInts) -> Batch:
        """The samples of many steps as columns, each of shape ``(n, ...)``.

        Args:
            steps: shape ``(n,)``, each in ``[0, n_steps)``.
        """
        return stack_samples(self.read_samples(steps))

    def as_iterator(self) -> StepIterator:
        """All steps as an iterator, for a loader; of a source without an end, 2**62 of them."""
        return StepIterator(self)

    def _stacked_on(self) -> list[DatasetIteratorIF]:
        """The iterators below it, for a recipe."""
        return []

    def _arguments(self) -> dict[str, Any]:
        """What it was made with besides, for a recipe."""
        return {}


AnySource = Union[StepSource, DatasetIteratorIF, Indexable, Callable[[int], Any]]
"""What a source can be stacked on: another one; an iterator or whatever has ``len`` and ``[i]``, whose sample i is that of step
i; or a function of a step (or of an index, where a length is given)."""


@layer("steps")
class StepIterator(AccessedDatasetIterator):
    """All steps of a source: sample i is ``source(i)``.

    Args:
        source: any; it stays the caller's.

    Raises:
        ConfigError: it is none.
    """

    def __init__(self, source: StepSource) -> None:
        if not isinstance(source, StepSource):
            raise ConfigError(f"an iterator over steps is made of a StepSource, not of {source!r:.80}")
        self.source = source
        self._below: list[DatasetIteratorIF] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source, "_below": None}

    def make_access(self) -> SampleAccess:
        return _StepAccess(self.source)

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """What the source is stacked on: iterators, and other sources as such."""
        if self._below is None:  # whoever walks through a stack knows its iterators by identity
            self._below = [] if self._kind is None else self.source._stacked_on()
        return list(self._below)

    def _arguments(self) -> dict[str, Any]:
        if self._kind is None:
            return {"source": None, "object": self.source}
        return {"source": self._kind, **self.source._arguments()}

    @property
    def _kind(self) -> str | None:
        """The name of the source's class; of a class that is none of ours, which nobody could make again, None."""
        return next((name for name, kind in _KINDS.items() if type(self.source) is kind), None)

    @classmethod
    def _rebuilt(cls, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        given = {key: value for key, value in arguments.items() if key != "source"}
        name = arguments.get("source")
        if name is None:
            return cls(given["object"])
        if name not in _KINDS:
            raise ConfigError(f"there is no source {name!r:.40}; there are {', '.join(_KINDS)}")
        rebuilt = cls(_KINDS[name]._rebuilt([_source(each) for each in underlying], given))
        rebuilt._below = underlying
        return rebuilt


class _StepAccess(SampleAccess):
    """Access to the steps of a source, many in one request."""

    def __init__(self, source: StepSource) -> None:
        self._source = source

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read-only here
        n_steps = self._source.n_steps
        return _ENDLESS if n_steps is None else n_steps

    def sample(self, position: int) -> Any:
        return self._source(position)

    def samples(self, positions: IndexArrayOfInts) -> list[Any]:
        return self._source.read_samples(positions)

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        return self._source.read_steps(positions) if len(positions) else self.empty_batch()

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[Column]:
        if positions is None and self._source.n_steps is None:
            raise ConfigError("a source without an end has no whole column; ask for that of some steps")
        return super().columns(keys, positions)


class _OurSource(StepSource):
    """A source on some others, which it keeps in ``_sources``."""

    _sources: list[StepSource]

    def _stacked_on(self) -> list[DatasetIteratorIF]:
        return [source.iterator if isinstance(source, _Indexed) else source.as_iterator() for source in self._sources]

    @classmethod
    def _rebuilt(cls, sources: list[StepSource], arguments: Mapping[str, Any]) -> StepSource:
        return cls(*sources, **arguments)

    def __repr__(self) -> str:
        arguments = [f"{name}={value!r:.60}" for name, value in self._arguments().items() if value is not None]
        return f"{type(self).__name__}({', '.join([*map(repr, self._sources), *arguments])})"


class _Indexed(_OurSource):
    """Sample i of an iterator at step i."""

    def __init__(self, iterator: DatasetIteratorIF) -> None:
        self.iterator = iterator
        self._sources = []

    @property
    def n_steps(self) -> int:
        return len(self.iterator)

    def __call__(self, step: int) -> Any:
        return self.iterator[self._checked(step)]

    def read_samples(self, steps: IndexArrayOfInts) -> list[Any]:
        self._checked(int(steps.max(initial=0)))
        return self.iterator.__getitems__(steps)

    def read_steps(self, steps: IndexArrayOfInts) -> Batch:
        self._checked(int(steps.max(initial=0)))
        return access_to(self.iterator).batch(steps)

    def _checked(self, step: int) -> int:
        if step >= len(self.iterator):
            raise DatasetOutOfBoundsError(
                f"step {step} is asked for of an iterator of {len(self.iterator):,} samples: "
                f"put Epochs(…) or Sample(…) around it, which have no end"
            )
        return step

    def __repr__(self) -> str:
        return repr(self.iterator)


class _Function(_OurSource):
    """What a function gives for each step.

    Args:
        function: of a step; it is called in any order, in any thread or process.
        length: how many steps it is for; None if there is no end.
    """

    def __init__(self, function: Callable[[int], Any], length: SupportsIndex | None = None) -> None:
        if not callable(function):
            raise ConfigError(f"a source needs a function of a step, got {function!r:.80}")
        self._function, self._length = function, _checked_length(length)
        self._sources = []

    @property
    def n_steps(self) -> int | None:
        return self._length

    def __call__(self, step: int) -> Any:
        return self._function(_checked_step(step))

    def _arguments(self) -> dict[str, Any]:
        return {"function": self._function, "length": self._length}

    def __repr__(self) -> str:
        return f"{self._function!r:.60}"


class _Reordering(_OurSource):
    """The samples of one source at other steps. A subclass says at which."""

    _sources: list[StepSource]

    @abstractmethod
    def _at(self, step: int) -> int:
        """Which step of the source it is."""
        raise NotImplementedError

    @abstractmethod
    def _taken(self, steps: IndexArrayOfInts) -> IndexArrayOfInts:
        """The same of many."""
        raise NotImplementedError

    def __call__(self, step: int) -> Any:
        return self._sources[0](self._at(_checked_step(step)))

    def read_samples(self, steps: IndexArrayOfInts) -> list[Any]:
        return self._sources[0].read_samples(self._taken(steps))

    def read_steps(self, steps: IndexArrayOfInts) -> Batch:
        return self._sources[0].read_steps(self._taken(steps))


class Epochs(_Reordering):
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
        self._sources, self._given_length = [_source(source)], _checked_length(length)
        self._length = _length_of(self._sources[0], self._given_length, "Epochs")
        self._shuffle, self._seed = bool(shuffle), checked_integer("the seed of Epochs", seed)

    def _at(self, step: int) -> int:
        epoch, place = divmod(step, self._length)
        return _recent_permutation(self._length, self._seed, epoch).at(place) if self._shuffle else place

    def _taken(self, steps: IndexArrayOfInts) -> IndexArrayOfInts:
        epochs, places = np.divmod(steps, self._length)
        if not self._shuffle:
            return places
        taken = np.empty(len(steps), dtype=np.int64)
        for epoch in np.unique(epochs).tolist():
            which = epochs == epoch
            taken[which] = _recent_permutation(self._length, self._seed, epoch).taken(places[which])
        return taken

    def _arguments(self) -> dict[str, Any]:
        return {"length": self._given_length, "shuffle": self._shuffle, "seed": self._seed}


class Sample(_Reordering):
    """Samples of ``source`` drawn with replacement, each draw independent of the others and a function of seed and step alone.

    Args:
        source: what has samples, see :data:`AnySource`.
        length: how many of them to draw from; None for all that ``source`` has.
        seed: any integer.

    Raises:
        ConfigError: as for :class:`Epochs`.
    """

    def __init__(self, source: AnySource, length: SupportsIndex | None = None, seed: SupportsIndex = 0) -> None:
        self._sources, self._given_length = [_source(source)], _checked_length(length)
        self._length = _length_of(self._sources[0], self._given_length, "Sample")
        self._seed = checked_integer("the seed of Sample", seed)
        self._key = derived_seed("sample", self._seed)

    def _at(self, step: int) -> int:
        return high_product(hashed(self._key, step), self._length)

    def _taken(self, steps: IndexArrayOfInts) -> IndexArrayOfInts:
        drawn = high_product_array(hashed_array(self._key, steps), np.array(self._length, dtype=np.uint64))
        return drawn.astype(np.int64)

    def _arguments(self) -> dict[str, Any]:
        return {"length": self._given_length, "seed": self._seed}


class Truncate(_Reordering):
    """The first ``limit`` samples of ``source``, again and again.

    Args:
        source: see :data:`AnySource`.
        limit: at least 1.
        length: how many ``source`` has, if that is less than ``limit``; None for what it says itself.

    Raises:
        ConfigError: ``source`` is none or empty, or ``limit`` not positive.
    """

    def __init__(self, source: AnySource, limit: SupportsIndex, length: SupportsIndex | None = None) -> None:
        self._sources, self._given_length = [_source(source)], _checked_length(length)
        self._given_limit = checked_integer("the limit of Truncate", limit, at_least=1)
        lengths = [each for each in (self._given_limit, self._given_length, self._sources[0].n_steps) if each is not None]
        self._limit = min(lengths)
        if self._limit == 0:
            raise ConfigError("Truncate was given a source without samples")

    def _at(self, step: int) -> int:
        return step % self._limit

    def _taken(self, steps: IndexArrayOfInts) -> IndexArrayOfInts:
        return steps % self._limit

    def _arguments(self) -> dict[str, Any]:
        return {"limit": self._given_limit, "length": self._given_length}


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
        self._sources, self._fn = [_source(source)], fn
        self._seed = checked_integer("the seed of Transform", seed)
        self._takes_seed, self._takes_rng = _takes(fn)
        self._key = derived_seed("transform step", self._seed)

    @property
    def n_steps(self) -> int | None:
        return self._sources[0].n_steps

    def __call__(self, step: int) -> Any:
        return self._transformed(self._sources[0](_checked_step(step)), step)

    def read_samples(self, steps: IndexArrayOfInts) -> list[Any]:
        samples = self._sources[0].read_samples(steps)
        return [self._transformed(sample, step) for sample, step in zip(samples, steps.tolist(), strict=True)]

    def _transformed(self, sample: Any, step: int) -> Any:
        keywords: dict[str, Any] = {}
        if self._takes_seed:
            keywords["seed"] = [self._seed, step]
        if self._takes_rng:
            keywords["rng"] = derived_generator(self._key, step)
        return self._fn(sample, **keywords)

    def _arguments(self) -> dict[str, Any]:
        return {"fn": self._fn, "seed": self._seed}


class _Joining(_OurSource):
    """Samples of several sources. A subclass says whose turn a step is."""

    @abstractmethod
    def _turns(self, steps: IndexArrayOfInts) -> tuple[IndexArrayOfInts, IndexArrayOfInts]:
        """For each step which source, and which step of it; both of shape ``(n,)``."""
        raise NotImplementedError

    def __call__(self, step: int) -> Any:
        number, inner = self._turns(np.array([_checked_step(step)], dtype=np.int64))
        return self._sources[int(number[0])](int(inner[0]))

    def read_samples(self, steps: IndexArrayOfInts) -> list[Any]:
        numbers, inner = self._turns(steps)
        samples: list[Any] = [None] * len(steps)
        for number in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == number)
            for place, sample in zip(places.tolist(), self._sources[number].read_samples(inner[places]), strict=True):
                samples[place] = sample
        return samples

    def read_steps(self, steps: IndexArrayOfInts) -> Batch:
        numbers, inner = self._turns(steps)
        if len(steps) == 0:
            return ()
        present = np.unique(numbers).tolist()
        places = [np.flatnonzero(numbers == number) for number in present]
        batches: list[Batch] = [self._sources[number].read_steps(inner[its]) for number, its in zip(present, places, strict=True)]
        if len(batches) == 1:
            return batches[0]
        back = np.empty(len(steps), dtype=np.intp)
        back[np.concatenate(places)] = np.arange(len(steps))
        return reordered(join_batches(batches), back)

    @classmethod
    def _rebuilt(cls, sources: list[StepSource], arguments: Mapping[str, Any]) -> StepSource:
        return cls(sources, **arguments)  # type: ignore[call-arg]  # those of the subclasses take them


class Interleave(_Joining):
    """One sample of each source in turn: step t is step ``t // k`` of source ``t % k``, for k sources.

    It ends where the first of them has no sample for its turn.

    Args:
        sources: at least one, see :data:`AnySource`.

    Raises:
        ConfigError: there is none, or one of them is no source.
    """

    def __init__(self, sources: Sequence[AnySource]) -> None:
        self._sources = _sources("Interleave", sources)

    @property
    def n_steps(self) -> int | None:
        ends = [n * len(self._sources) + place for place, source in enumerate(self._sources) if (n := source.n_steps) is not None]
        return min(ends) if ends else None

    def _turns(self, steps: IndexArrayOfInts) -> tuple[IndexArrayOfInts, IndexArrayOfInts]:
        inner, numbers = np.divmod(steps, len(self._sources))
        return numbers, inner

    def _arguments(self) -> dict[str, Any]:
        return {}


class Mix(_Joining):
    """Samples of several sources in stated proportions, in a drawn order.

    Each source is asked for its steps 0, 1, 2 … in this order: none is left out or comes twice. (Granular 0.24 asks for the step
    of the mix, so that a mix of two epochs of 100 samples gives 155 different ones in 200 steps.) After each *block* of steps,
    which is 1 divided by the smallest part of all weights, every source has come as often as its weight says, up to one sample;
    see :class:`~data_stack.loader.turns.Turns`. Seed and step alone decide all of it.

    Args:
        sources: at least one, see :data:`AnySource`. None with a weight may end: put ``Epochs(…)`` around it.
        weights: a number for each, finite and not negative, of any sum; None for all the same.
        seed: any integer.

    Raises:
        ConfigError: there is no source, one of them is none or ends, or the weights are not allowed, see
            :func:`~data_stack.loader.turns.checked_parts`.
    """

    def __init__(
        self,
        sources: Sequence[AnySource],
        weights: Sequence[float] | npt.ArrayLike | None = None,
        seed: SupportsIndex = 0,
    ) -> None:
        self._sources = _sources("Mix", sources)
        numbers, parts = checked_parts(weights, len(self._sources))
        for place, (source, part) in enumerate(zip(self._sources, parts, strict=True)):
            if part and source.n_steps is not None:
                raise ConfigError(
                    f"source {place} of a mix ends after {source.n_steps:,} samples, a mix does not; "
                    f"put Epochs(…) or Sample(…) around it"
                )
        self._seed = checked_integer("the seed of Mix", seed)
        self._weights = None if weights is None else numbers
        self._of_turns = Turns(parts, derived_seed("mix", self._seed))

    def _turns(self, steps: IndexArrayOfInts) -> tuple[IndexArrayOfInts, IndexArrayOfInts]:
        return self._of_turns.at(steps)

    def _arguments(self) -> dict[str, Any]:
        return {"weights": self._weights, "seed": self._seed}


# by their names in a recipe
_KINDS: dict[str, type[_OurSource]] = {
    "Epochs": Epochs,
    "Function": _Function,
    "Interleave": Interleave,
    "Mix": Mix,
    "Sample": Sample,
    "Transform": Transform,
    "Truncate": Truncate,
}


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


def _sources(name: str, given: Sequence[AnySource]) -> list[StepSource]:
    if isinstance(given, (StepSource, DatasetIteratorIF)) or callable(given):
        raise ConfigError(f"{name} is given a list of sources, not {given!r:.80}")
    sources = [_source(each) for each in given]
    if not sources:
        raise ConfigError(f"{name} needs at least one source; it was given none")
    return sources


def _checked_length(length: SupportsIndex | None) -> int | None:
    return None if length is None else checked_integer("the length of a source", length, at_least=1)


def _checked_step(step: SupportsIndex) -> int:
    return step if type(step) is int and step >= 0 else checked_integer("a step", step, at_least=0)


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


def _takes(function: Callable[..., Any]) -> tuple[bool, bool]:
    """Whether a function takes a keyword ``seed``, and whether one ``rng``."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C, without a signature
        return False, False
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return takes_any or "seed" in parameters, "rng" in parameters
