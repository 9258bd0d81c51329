"""What a loader asks of the access to its samples: in which blocks they are read, where one lies, and to read some ahead."""

from __future__ import annotations

import contextlib

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorIF, SampleAccess, access_to
from data_stack.exception import ConfigError

__all__ = ["block_lengths", "locate_sample", "prefetch_samples"]


def block_lengths(iterator: DatasetIteratorIF) -> npt.NDArray[np.int64]:
    """How many consecutive samples of a stack are read together, shape ``(n_blocks,)``; blocks without any are left out.

    A source tells it by :meth:`~data_stack.dataset.iterator.SampleAccess.blocks`, as
    :class:`~data_stack.formats.parquet.ParquetDataset` does. Layers that change or choose samples, but not their order, keep the
    blocks of what they are stacked on; ``combine`` has those of all.

    Raises:
        ConfigError: the source tells none, or a layer changes the order.
    """
    lengths = access_to(iterator).blocks()
    if lengths is None:
        raise ConfigError(
            f"{iterator!r:.120} does not tell in which blocks it is read: give the block-wise shuffle their lengths, "
            f"BlockShuffled(block_lengths=1000) for blocks of 1000 samples; or shuffle below this layer"
        )
    return lengths[lengths > 0]


def locate_sample(samples: SampleAccess, position: int) -> str | None:
    """Where a sample is stored, for messages; whatever goes wrong on the way, the answer is None."""
    try:
        return samples.locate(position)
    except Exception:  # noqa: BLE001  # an error is being told already
        return None


def prefetch_samples(samples: SampleAccess, positions: npt.NDArray[np.integer]) -> None:
    """Let the source of a stack read blocks in the background from which samples will be asked for soon.

    Whatever goes wrong is told to those who ask for the samples.
    """
    with contextlib.suppress(Exception):
        samples.prefetch(positions)
