"""What the source of a stack tells of where its samples lie: in which blocks, and at which place; and reading blocks ahead."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.iterator import IndexArrayOfInts
from data_stack.dataset.iterator.positions import as_index_array, taken
from data_stack.dataset.recipes.recipe import described_layer
from data_stack.exception import ConfigError

__all__ = ["block_lengths", "known_block_lengths", "read_ahead", "source_place"]

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
    lengths = _block_lengths(iterator, through_views=True)
    if lengths is None:
        raise ConfigError(
            f"{iterator!r:.120} does not tell in which blocks it is read: give the block-wise shuffle their lengths, "
            f"BlockShuffled(block_lengths=1000) for blocks of 1000 samples; or shuffle below this layer"
        )
    return lengths[lengths > 0]


def _block_lengths(iterator: Any, *, through_views: bool) -> npt.NDArray[np.int64] | None:
    told = getattr(iterator, "block_lengths", None)
    if told is not None and not callable(told):
        return np.asarray(told, dtype=np.int64)
    source, positions = iterator._located()
    if source is not iterator:
        below = _block_lengths(source, through_views=through_views)
        if below is None or positions is None:
            return below
        if not through_views:
            return None
        chosen = as_index_array(positions)
        if (chosen[1:] < chosen[:-1]).any():
            return None
        return np.diff(np.searchsorted(chosen, np.cumsum(below)), prepend=0)
    layer = described_layer(iterator, probed=False)
    if layer.name == "combined":
        parts = [_block_lengths(each, through_views=through_views) for each in layer.of]
        return None if any(part is None for part in parts) else np.concatenate([part for part in parts if part is not None])
    if layer.name not in _ONE_TO_ONE or len(layer.of) != 1:
        return None
    return _block_lengths(layer.of[0], through_views=through_views)


def known_block_lengths(iterator: DatasetIteratorIF) -> npt.NDArray[np.int64] | None:
    """As :func:`block_lengths`, but None where that is an error, and of views, whose positions would have to be written out."""
    try:
        return _block_lengths(iterator, through_views=False)
    except Exception:  # noqa: BLE001  # nobody asked for it
        return None


def source_place(iterator: Any, index: int) -> str | None:
    """Where the source of a stack has a sample, such as ``"row 3 of row group 0 of a.parquet"``; None where it does not tell.

    A source tells it in a method ``place_of``. It is for messages: whatever goes wrong on the way, the answer is None.
    """
    try:
        found = _in_source(iterator, np.array([index]), "place_of")
        return None if found is None else str(found[0].place_of(int(found[1][0])))
    except Exception:  # noqa: BLE001  # an error is being told already
        return None


def read_ahead(iterator: Any, indices: IndexArrayOfInts) -> None:
    """Let the source of a stack read blocks in the background from which samples will be asked for soon.

    A source does so in a method ``read_ahead``, as :class:`~data_stack.formats.parquet.ParquetDataset` has it; others do nothing.
    Whatever goes wrong is told to those who ask for the samples.
    """
    with contextlib.suppress(Exception):
        found = _in_source(iterator, indices, "read_ahead")
        if found is not None:
            found[0].read_ahead(found[1])


def _in_source(iterator: Any, indices: IndexArrayOfInts, method: str) -> tuple[Any, IndexArrayOfInts] | None:
    """The source of a stack, and where it has the samples at ``indices``; None if it does not have the method."""
    while not hasattr(iterator, method):
        source, positions = iterator._located()
        if source is not iterator:
            iterator, indices = source, indices if positions is None else taken(positions, indices)
            continue
        layer = described_layer(iterator, probed=False)
        if layer.name not in _ONE_TO_ONE or len(layer.of) != 1:
            return None
        (iterator,) = layer.of
    return iterator, indices
