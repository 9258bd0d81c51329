"""Granular's sources: functions from a step to a datapoint, with Granular's draws for each seed and step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def convert(source: Any) -> Callable[[int], Any]:
    """Convert a source to a function of a step: the source itself, or its ``[step]``.

    Raises:
        TypeError: the source is neither callable nor indexable.
    """
    function = source if callable(source) else getattr(source, "__getitem__", None)
    if function is None or isinstance(source, (str, bytes, dict)):
        raise TypeError(
            f"expected a source, a function of a step or an object with [step], got {source!r:.80}"
        )
    return function  # type: ignore[no-any-return]  # any function


class Transform:
    """``fn(datapoint, seed=[seed, step])`` of each datapoint of ``source``."""

    def __init__(self, source: Any, fn: Callable[..., Any], seed: int = 0) -> None:
        self.source, self.fn, self.seed = convert(source), fn, seed

    def __call__(self, step: int) -> Any:
        return self.fn(self.source(step), seed=[self.seed, step])


class Sample:
    """Samples of the first ``length`` datapoints of ``source``, with replacement; None: of all."""

    def __init__(self, source: Any, length: int | None = None, seed: int = 0) -> None:
        self.source, self.length, self.seed = convert(source), length or len(source), seed

    def __call__(self, step: int) -> Any:
        return self.source(int(_draws(self.seed, step).choice(self.length)))


class Epochs:
    """Endless epochs of the datapoints of ``source``.

    Args:
        source: the datapoints.
        length: number of datapoints; None: all.
        shuffle: whether to shuffle each epoch.
        seed: seed of the orders. (Granular ignores this argument and uses 0, with the same orders.)
    """

    def __init__(
        self, source: Any, length: int | None = None, shuffle: bool = True, seed: int = 0
    ) -> None:
        self.source, self.length, self.shuffle, self.seed = (
            convert(source),
            length or len(source),
            shuffle,
            seed,
        )

    def __call__(self, step: int) -> Any:
        epoch, place = divmod(step, self.length)
        return self.source(
            int(_order(self.length, self.seed, epoch)[place]) if self.shuffle else place
        )


class Truncate:
    """Repeats the first ``limit`` datapoints of ``source``, or all if it has fewer (``length``; None: its own)."""

    def __init__(self, source: Any, limit: int, length: int | None = None) -> None:
        self.source, self.limit = convert(source), min(length or len(source), limit)

    def __call__(self, step: int) -> Any:
        return self.source(step % self.limit)


class Interleave:
    """One datapoint of each source in turn."""

    def __init__(self, sources: Sequence[Any]) -> None:
        self.sources = [convert(source) for source in sources]

    def __call__(self, step: int) -> Any:
        place, which = divmod(step, len(self.sources))
        return self.sources[which](place)


class Mix:
    """At each step, the datapoint of a source that is drawn by weights."""

    def __init__(self, sources: Sequence[Any], weights: npt.ArrayLike, seed: int = 0) -> None:
        self.sources, self.seed = [convert(source) for source in sources], seed
        self.weights = np.asarray(weights, np.float32)
        self.weights = self.weights / self.weights.sum()

    def __call__(self, step: int) -> Any:
        return self.sources[int(_draws(self.seed, step).choice(len(self.sources), p=self.weights))](
            step
        )


def _draws(seed: int, number: int) -> np.random.Generator:
    return np.random.default_rng([seed, number])


@functools.lru_cache(maxsize=4)
def _order(length: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    return _draws(seed, epoch).permutation(length)
