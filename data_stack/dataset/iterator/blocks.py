"""Reads an iterator from first to last in blocks that take little memory, however large a sample is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["bytes_held", "in_blocks"]

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
        bytes_per_sample = max(1, bytes_held(block) // (stop - start))
        yield start, block
        length = max(1, min(length * _GROWTH, _BLOCK_BYTES // bytes_per_sample, _MOST_SAMPLES))
        start = stop


def bytes_held(value: Any) -> int:
    """About how much memory ``value`` takes: a batch, a list of samples, or a part of one."""
    if isinstance(value, Mapping):
        return sum(map(bytes_held, value.values()))
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype == object):
        return sum(map(bytes_held, value))
    n_bytes = getattr(value, "nbytes", None)  # of arrays and tensors
    return n_bytes if isinstance(n_bytes, int) else sys.getsizeof(value, 64)
