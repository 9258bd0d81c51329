"""Reads an iterator from first to last in blocks that take little memory, however large a sample is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.sample_columns import estimate_bytes

_Block = TypeVar("_Block")

# Large enough that a request costs little per byte, small enough to stay in a processor's cache.
_BLOCK_BYTES = 1 << 22
_MOST_SAMPLES = 1 << 14
_GROWTH = 8


def in_blocks(n_samples: int, read: Callable[[npt.NDArray[np.intp]], _Block]) -> Iterator[tuple[int, _Block]]:
    """What ``read`` gives for consecutive positions that together are ``0 .. n_samples - 1``, each with its first position.

    The first block is one sample; the others are as long as the samples so far were small: about 4 MiB, at most 16,384 samples.
    """
    start, length = 0, 1
    while start < n_samples:
        stop = min(start + length, n_samples)
        block = read(np.arange(start, stop, dtype=np.intp))
        bytes_per_sample = max(1, estimate_bytes(block) // (stop - start))
        yield start, block
        length = max(1, min(length * _GROWTH, _BLOCK_BYTES // bytes_per_sample, _MOST_SAMPLES))
        start = stop
