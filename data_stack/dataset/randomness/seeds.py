"""Random numbers that are the same wherever and whenever they are drawn: pure functions of a seed and what they are for."""

from __future__ import annotations

import hashlib
import operator
from typing import SupportsIndex

import numpy as np

__all__ = ["derive_generator", "derive_seed"]


def derive_seed(*parts: SupportsIndex | str) -> int:
    """64 bits that depend on all ``parts`` and their order, and look random: the start of their SHA-256."""
    texts = [part if isinstance(part, str) else str(operator.index(part)) for part in parts]
    digest = hashlib.sha256("\0".join(texts).encode()).digest()
    return int.from_bytes(digest[:8], "little")


def derive_generator(seed: int, index: int = 0) -> np.random.Generator:
    """The generator number ``index`` of a :func:`derive_seed`: Philox, whose streams for different keys are independent.

    Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
    """
    return np.random.Generator(np.random.Philox(key=(index << 64) | seed))
