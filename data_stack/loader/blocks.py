"""What the source of a stack tells of where its samples lie: in which blocks it reads them, and the place of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.positions import as_index_array
from data_stack.dataset.recipes.recipe import described_layer
from data_stack.exception import ConfigError

__all__ = ["block_lengths", "source_place"]

#: Layers that have one sample for each sample below, in the same order.
_ONE_TO_ONE = frozenset(
    (
        *("cached", "dicts", "encoded", "fields", "informed", "mapped"),
        *("mapped_classes", "renamed", "stored_cache", "transformed", "tuples"),
    )
)


def block_lengths(iterator: DatasetIteratorIF) -> npt.NDArray[np.int64]:
    """How many consecutive samples of a stack its source reads together, shape ``(n_blocks,)``; blocks without any are left out.

    A source tells it in an attribute ``block_lengths``, as :class:`~data_stack.formats.parquet.ParquetDataset` does. Layers that
    change or choose samples, but not their order, keep the blocks of what they are stacked on; ``combine`` has those of all.

    Raises:
        ConfigError: the source tells none, or a layer changes the order.
    """
    lengths = _block_lengths(iterator)
    if lengths is None:
        raise ConfigError(
            f"{iterator!r:.120} does not tell in which blocks it is read: give the block-wise shuffle their lengths, "
            f"BlockShuffled(1000) for blocks of 1000 samples; or shuffle below this layer"
        )
    return lengths[lengths > 0]


def _block_lengths(iterator: Any) -> npt.NDArray[np.int64] | None:
    told = getattr(iterator, "block_lengths", None)
    if told is not None and not callable(told):
        return np.asarray(told, dtype=np.int64)
    source, positions = iterator._located()
    if source is not iterator:
        below = _block_lengths(source)
        if below is None or positions is None:
            return below
        chosen = as_index_array(positions)
        if (chosen[1:] < chosen[:-1]).any():
            return None
        return np.diff(np.searchsorted(chosen, np.cumsum(below)), prepend=0)
    layer = described_layer(iterator, probed=False)
    if layer.name == "combined":
        parts = [_block_lengths(each) for each in layer.of]
        return None if any(part is None for part in parts) else np.concatenate([part for part in parts if part is not None])
    return _block_lengths(layer.of[0]) if layer.name in _ONE_TO_ONE and len(layer.of) == 1 else None


def source_place(iterator: Any, index: int) -> str | None:
    """Where the source of a stack has a sample, such as ``"row 3 of row group 0 of a.parquet"``; None where it does not tell.

    A source tells it in a method ``place_of``. It is for messages: whatever goes wrong on the way, the answer is None.
    """
    try:
        while not hasattr(iterator, "place_of"):
            source, positions = iterator._located()
            if source is not iterator:
                iterator, index = source, index if positions is None else int(positions[index])
                continue
            layer = described_layer(iterator, probed=False)
            if layer.name not in _ONE_TO_ONE or len(layer.of) != 1:
                return None
            (iterator,) = layer.of
        return str(iterator.place_of(index))
    except Exception:  # noqa: BLE001  # an error is being told already
        return None
