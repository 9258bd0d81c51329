"""Blocks of samples: those in which an iterator is read from first to last, and those of samples in a remote store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.sample_columns import estimate_bytes

_Block = TypeVar("_Block")

# Large enough that a request costs little per byte, small enough to stay in a processor's cache.
_BLOCK_BYTES = 1 << 22
_MAX_SAMPLES = 1 << 14
_GROWTH = 8


def in_blocks(n_samples: int, read: Callable[[npt.NDArray[np.intp]], _Block]) -> Iterator[tuple[int, _Block]]:
    """What ``read`` returns for consecutive positions that together are ``0 .. n_samples - 1``, each with its first position.

    The first block is one sample; the others are as long as the samples so far were small: about 4 MiB, at most 16,384 samples.
    """
    start, length = 0, 1
    while start < n_samples:
        stop = min(start + length, n_samples)
        block = read(np.arange(start, stop, dtype=np.intp))
        bytes_per_sample = max(1, estimate_bytes(block) // (stop - start))
        yield start, block
        length = max(1, min(length * _GROWTH, _BLOCK_BYTES // bytes_per_sample, _MAX_SAMPLES))
        start = stop


#: Bytes of a remote file that are cached while it is read: a smaller file is fetched once, in any order.
MAX_KEPT_REMOTE_BYTES = 16 << 20
# A window of a block-wise shuffle, 16 blocks, fits into that cache, and the pieces that two blocks share are few.
_REMOTE_BLOCK_BYTES = 768 << 10


def blocks_of_rows(n_samples: int, n_bytes: float) -> npt.NDArray[np.int64]:
    """The lengths of the blocks of samples that lie one behind the other in a remote store, shape ``(n_blocks,)``.

    Args:
        n_samples: of all.
        n_bytes: of each sample.
    """
    length = max(1, int(_REMOTE_BLOCK_BYTES // n_bytes))
    lengths = np.full(-(-n_samples // length), length, dtype=np.int64)
    lengths[-1:] -= len(lengths) * length - n_samples
    return lengths
