"""The contract of orders of the samples of an epoch."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorIF, access_to
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError


class Order(ABC):
    """Maps positions of an epoch to samples: a pure function of seed, epoch and position.

    Every sample has exactly one position. The sample at a position does not depend on the other
    positions of a call. An order is an immutable value that pickles.
    """

    shares_seed: ClassVar[bool] = True
    """Whether ranks need the same seed so that together they read each sample once."""

    @abstractmethod
    def indices(
        self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int
    ) -> IndexArrayOfInts:
        """Return the samples at ``positions``.

        Args:
            positions: shape ``(n,)``, each in ``[0, n_samples)``.
            n_samples: the number of samples of the epoch, at least 1.
            seed: any integer.
            epoch: at least 0.

        Returns:
            Indices of samples, shape ``(n,)``, each in ``[0, n_samples)``.

        Raises:
            ConfigError: the order was made for another number of samples.
        """
        raise NotImplementedError

    def upcoming(
        self, position: int, n_samples: int, seed: int, epoch: int
    ) -> tuple[IndexArrayOfInts | None, int]:
        """Return samples whose blocks a source may prefetch at a position.

        One sample of a block stands for the block, as a source reads blocks as a whole.

        Args:
            position: the position of the next sample.
            n_samples: as for :meth:`indices`.
            seed: as for :meth:`indices`.
            epoch: as for :meth:`indices`.

        Returns:
            One sample of each block that is needed soon, shape ``(n,)``, or None without blocks;
            and the position from which on other blocks are needed.
        """
        return None, sys.maxsize

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Return plain JSON data that identifies the order in the state of a loader."""
        raise NotImplementedError

    def for_iterator(self, iterator: DatasetIteratorIF) -> Order:
        """Return the order for a stack: itself, or a copy with the blocks of the stack.

        Raises:
            ConfigError: the order needs blocks, and the stack reports none.
        """
        return self

    def __repr__(self) -> str:
        arguments = []
        for name, value in self.content().items():
            if name != "order":
                arguments.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(arguments)})"


def indices_of(
    order: Order, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int
) -> IndexArrayOfInts:
    """Return :meth:`Order.indices`, after a check of what a class of others has returned.

    Raises:
        ConfigError: the order does not return an integer for each position.
    """
    indices = np.asarray(order.indices(positions, n_samples, seed, epoch))
    # A mask of bools would pass for the samples 0 and 1.
    if indices.shape != positions.shape or indices.dtype.kind not in "iu":
        raise ConfigError(
            f"{order!r} returned indices of shape {indices.shape} and dtype {indices.dtype} for "
            f"{len(positions)} positions; return one integer per position"
        )
    if np.can_cast(indices.dtype, np.intp):
        # numpy would convert int32 again for each column of each batch that it gathers.
        return indices.astype(np.intp, copy=False)
    return indices


def block_lengths(iterator: DatasetIteratorIF) -> npt.NDArray[np.int64] | None:
    """Return the number of samples of each block that a stack reads together, without empty blocks.

    Sources report blocks by :meth:`~data_stack.dataset.iterator.SampleAccess.blocks`, as
    :class:`~data_stack.formats.parquet.ParquetDataset` does. Layers that change or select samples,
    but keep their order, keep the blocks below; ``combine`` has the blocks of all parts.

    Returns:
        Shape ``(n_blocks,)``; None if the source reports no blocks, or a layer changes the order.
    """
    lengths = access_to(iterator).blocks()
    if lengths is None:
        return None
    return lengths[lengths > 0]
