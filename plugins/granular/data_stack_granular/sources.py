"""Granular's sources: functions from a step to a datapoint.

They make the same draws as Granular's for each seed and step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

#: A function from a step, counted from 0, to a datapoint.
Source = Callable[[int], Any]


def convert(source: Any) -> Source:
    """Convert a source to a function of a step: the source itself, or its ``[step]``.

    Raises:
        TypeError: the source is neither callable nor indexable, or is a text or dict.
    """
    if callable(source):
        return source  # type: ignore[no-any-return]  # any function
    is_indexable = hasattr(source, "__getitem__")
    if not is_indexable or isinstance(source, (str, bytes, dict)):
        raise TypeError(
            f"expected a source, a function of a step or an object with [step], got {source!r:.80}"
        )
    return source.__getitem__  # type: ignore[no-any-return]  # of any object


class Transform:
    """Transforms each datapoint of ``source``.

    Args:
        source: the datapoints.
        fn: called as ``fn(datapoint, seed=[seed, step])``; returns the new datapoint.
        seed: seed of the random numbers of ``fn``.
    """

    def __init__(self, source: Any, fn: Callable[..., Any], seed: int = 0) -> None:
        self.source = convert(source)
        self.fn = fn
        self.seed = seed

    def __call__(self, step: int) -> Any:
        datapoint = self.source(step)
        return self.fn(datapoint, seed=[self.seed, step])


class Sample:
    """Draws from the first ``length`` datapoints of ``source``, with replacement.

    Args:
        source: the datapoints.
        length: number of datapoints; None, or 0 as in Granular: all.
        seed: seed of the draws.
    """

    def __init__(self, source: Any, length: int | None = None, seed: int = 0) -> None:
        self.source = convert(source)
        self.length = length or len(source)
        self.seed = seed

    def __call__(self, step: int) -> Any:
        index = _make_generator(self.seed, step).choice(self.length)
        return self.source(int(index))


class Epochs:
    """Endless epochs of the datapoints of ``source``.

    Args:
        source: the datapoints.
        length: number of datapoints; None, or 0 as in Granular: all.
        shuffle: whether to shuffle each epoch.
        seed: seed of the orders. (Granular ignores this argument and uses 0, with the same orders.)
    """

    def __init__(
        self, source: Any, length: int | None = None, shuffle: bool = True, seed: int = 0
    ) -> None:
        self.source = convert(source)
        self.length = length or len(source)
        self.shuffle = shuffle
        self.seed = seed

    def __call__(self, step: int) -> Any:
        epoch, index = divmod(step, self.length)
        if self.shuffle:
            index = int(_permutation(self.length, self.seed, epoch)[index])
        return self.source(index)


class Truncate:
    """Repeats the first ``limit`` datapoints of ``source``, or all if it has fewer.

    Args:
        source: the datapoints.
        limit: the maximum number of datapoints.
        length: number of datapoints of ``source``; None, or 0 as in Granular: ``len(source)``.
    """

    def __init__(self, source: Any, limit: int, length: int | None = None) -> None:
        self.source = convert(source)
        self.limit = min(length or len(source), limit)

    def __call__(self, step: int) -> Any:
        return self.source(step % self.limit)


class Interleave:
    """One datapoint of each source in turn.

    Args:
        sources: the sources, of any length.
    """

    def __init__(self, sources: Sequence[Any]) -> None:
        self.sources = [convert(source) for source in sources]

    def __call__(self, step: int) -> Any:
        step_of_source, source_number = divmod(step, len(self.sources))
        return self.sources[source_number](step_of_source)


class Mix:
    """At each step, the datapoint of a source that is drawn by weights.

    Args:
        sources: the sources; the drawn one makes the datapoint of the same step.
        weights: weight of each source, shape ``(n_sources,)``; their sum need not be 1.
        seed: seed of the draws.
    """

    def __init__(self, sources: Sequence[Any], weights: npt.ArrayLike, seed: int = 0) -> None:
        self.sources = [convert(source) for source in sources]
        weights_as_array = np.asarray(weights, np.float32)
        self.weights = weights_as_array / weights_as_array.sum()
        self.seed = seed

    def __call__(self, step: int) -> Any:
        generator = _make_generator(self.seed, step)
        source_number = generator.choice(len(self.sources), p=self.weights)
        return self.sources[int(source_number)](step)


def _make_generator(seed: int, number: int) -> np.random.Generator:
    """Return the generator of a step or epoch."""
    return np.random.default_rng([seed, number])


@functools.lru_cache(maxsize=4)
def _permutation(length: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Return the order of the datapoints in an epoch."""
    return _make_generator(seed, epoch).permutation(length)
