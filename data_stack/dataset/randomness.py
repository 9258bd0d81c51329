"""Seeds, which decide the random numbers of layers and loaders wherever they are drawn."""

from __future__ import annotations

import hashlib
import operator
import sys
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence

from data_stack.dataset.permutation import KeyedPermutation as KeyedPermutation  # for programs
from data_stack.dataset.positions import check_integer


def derive_seed(*parts: SupportsIndex | str) -> int:
    """Return 64 bits that depend on all parts and their order, and look random.

    They are the start of a SHA-256.

    Args:
        parts: integers and texts.
    """
    texts = [part if isinstance(part, str) else str(operator.index(part)) for part in parts]
    digest = hashlib.sha256("\0".join(texts).encode()).digest()
    return int.from_bytes(digest[:8], "little")


def derive_generator(seed: int, index: int = 0) -> np.random.Generator:
    """Return generator number ``index`` of a seed.

    The generator is Philox, whose streams for different keys are independent. It draws what
    ``Philox(key=(index << 64) | seed)`` draws, and its ``spawn`` depends on the arguments alone.

    Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).

    Args:
        seed: 64 bits, as :func:`derive_seed` returns them.
        index: the number of the generator.
    """
    sequence: Any = _PhiloxKey(seed, index)  # numpy's stubs lack ISeedSequence
    return np.random.Generator(np.random.Philox(sequence))


class _PhiloxKey(ISpawnableSeedSequence):
    """The key of a Philox generator, in the form of a sequence of seeds.

    ``Philox(key=...)`` does the same, but asks the system for entropy first, which takes 12 µs.
    """

    #: The two halves of the key: seed and index.
    _words: tuple[int, int]
    #: Makes the children; None before the first ones.
    _parent: np.random.SeedSequence | None

    def __init__(self, seed: int, index: int) -> None:
        self._words = (seed, index)
        self._parent = None

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> Any:
        """Return the key, shape ``(2,)``, uint64: Philox asks for nothing else."""
        return np.array(self._words, np.uint64)

    def spawn(self, n_children: int) -> list[np.random.SeedSequence]:
        """Return sequences of seeds for further generators, other ones in each call."""
        if self._parent is None:
            self._parent = np.random.SeedSequence(self._words)
        return self._parent.spawn(n_children)


@dataclass(frozen=True, slots=True)
class Draw:
    """What decides the random numbers of a layer.

    Attributes:
        seed: the seed of the layer.
        epoch: the number of the epoch, from 0.
        key: 64 bits that the name of the layer, the seed and the epoch decide.
    """

    seed: int
    epoch: int
    key: int


def check_draw(layer: str, seed: Any, epoch: Any) -> Draw:
    """Check the seed and the epoch of a random layer, and derive the key of its random numbers.

    Args:
        layer: the name of the layer, such as ``"shuffled"``.
        seed: an integer.
        epoch: an integer, at least 0.

    Raises:
        ConfigError: the seed or the epoch is not such an integer.
    """
    checked_seed = check_integer(f"the seed of a {layer} iterator", seed)
    checked_epoch = check_integer(f"the epoch of a {layer} iterator", epoch, at_least=0)
    key = derive_seed(layer, checked_seed, checked_epoch)
    return Draw(checked_seed, checked_epoch, key)


def check_n_drawn(layer: str, n_samples: Any) -> int | None:
    """Check the number of samples that a random layer draws; None is the default of the layer.

    Raises:
        ConfigError: the number is not an integer, or negative.
    """
    if n_samples is None:
        return None
    name = f"the n_samples of a {layer} iterator"
    return check_integer(name, n_samples, at_least=0, at_most=sys.maxsize)
