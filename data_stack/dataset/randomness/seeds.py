"""Random numbers that are the same wherever and whenever they are drawn: pure functions of a seed and what they are for."""

from __future__ import annotations

import hashlib
import operator
from typing import Any, SupportsIndex

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence


def derive_seed(*parts: SupportsIndex | str) -> int:
    """64 bits that depend on all ``parts`` and their order, and look random: the start of their SHA-256."""
    texts = [part if isinstance(part, str) else str(operator.index(part)) for part in parts]
    digest = hashlib.sha256("\0".join(texts).encode()).digest()
    return int.from_bytes(digest[:8], "little")


def derive_generator(seed: int, index: int = 0) -> np.random.Generator:
    """The generator number ``index`` of a :func:`derive_seed`: Philox, whose streams for different keys are independent.

    It draws what ``Philox(key=(index << 64) | seed)`` draws, and its ``spawn`` depends on ``seed`` and ``index`` alone.

    Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
    """
    return np.random.Generator(np.random.Philox(_Key(seed, index)))  # type: ignore[arg-type]  # numpy's stubs lack ISeedSequence


class _Key(ISpawnableSeedSequence):
    """A key as numpy takes it from a sequence of seeds: ``Philox(key=...)`` asks the system for entropy first, for 12 µs."""

    _parent: np.random.SeedSequence | None = None

    def __init__(self, seed: int, index: int) -> None:
        self._words = seed, index

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> Any:
        return np.array(self._words, np.uint64)

    def spawn(self, n_children: int) -> list[np.random.SeedSequence]:
        if self._parent is None:
            self._parent = np.random.SeedSequence(self._words)
        return self._parent.spawn(n_children)
