"""Samples in blocks of limited memory, as estimated from their values."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

_Block = TypeVar("_Block")

#: Bytes of a block: large enough that a request costs little per byte, small enough to stay in a
#: processor's cache.
_BYTES_OF_BLOCK = 4 << 20

#: Samples of a block.
_MAX_SAMPLES = 1 << 14

#: A block has up to this many times the samples of the block before: the first ones may be small.
_MAX_GROWTH = 8

#: Bytes of a block of a remote file. A request takes about a millisecond of processor time whatever
#: its length, and receiving a MiB takes 1.2 ms. Longer blocks would take more memory.
_BYTES_OF_REMOTE_BLOCK = 1536 << 10

#: Bytes of a remote file that are cached while it is read: a smaller file is fetched once, in any
#: order.
MAX_KEPT_REMOTE_BYTES = 16 << 20

#: Bytes of the object around the numbers of an array.
_ARRAY_BYTES = 112

#: Levels of containers in containers that are measured.
_MAX_DEPTH = 8

#: Types of values that hold no others.
_ATOMS = frozenset((str, bytes, int, float, bool, type(None)))


def in_blocks(
    n_samples: int, read: Callable[[npt.NDArray[np.intp]], _Block]
) -> Iterator[tuple[int, _Block]]:
    """Read all samples in blocks of about 4 MiB, and of at most 16,384 samples.

    The first block is one sample. The size of each block tells how many samples the next one has.

    Args:
        n_samples: how many samples there are.
        read: reads the samples at consecutive positions, shape ``(n,)``.

    Yields:
        The first position of each block, and what ``read`` returned for it.
    """
    start = 0
    n_at_once = 1
    while start < n_samples:
        stop = min(start + n_at_once, n_samples)
        block = read(np.arange(start, stop, dtype=np.intp))
        bytes_per_sample = max(1, estimate_bytes(block) // (stop - start))
        yield start, block
        n_that_fit = _BYTES_OF_BLOCK // bytes_per_sample
        n_at_once = max(1, min(n_at_once * _MAX_GROWTH, n_that_fit, _MAX_SAMPLES))
        start = stop


def blocks_of_rows(n_samples: int, n_bytes: float) -> npt.NDArray[np.int64]:
    """Return the lengths of the blocks of samples that lie end to end in a remote store.

    Args:
        n_samples: how many samples there are.
        n_bytes: the bytes of a sample, more than 0.

    Returns:
        The number of samples in each block, shape ``(n_blocks,)``.
    """
    length = rows_of_block(n_bytes)
    n_full_blocks, n_left = divmod(n_samples, length)
    lengths = np.full(n_full_blocks, length, dtype=np.int64)
    if n_left:
        lengths = np.append(lengths, n_left)
    return lengths


def rows_of_block(n_bytes: float) -> int:
    """Return the number of samples in each block in a remote store but the last one.

    A block is so small that the 16 blocks of a window of a block-wise shuffle fit into the cache of
    a remote file. It is so large that few pieces of that cache hold the end of one block and the
    start of the next.

    Args:
        n_bytes: the bytes of a sample, more than 0.
    """
    return max(1, int(_BYTES_OF_REMOTE_BLOCK // n_bytes))


def estimate_bytes(value: Any, depth: int = 0, *, max_objects: int | None = None) -> int:
    """Return roughly the memory that ``value`` takes.

    Arrays, tensors, images, strings, containers and dataclasses are measured. What several values
    share is counted for each; what an array is a view of is not counted.

    Args:
        value: any object.
        depth: how many containers ``value`` is in. Containers deeper than 8 are not looked into.
        max_objects: the number of elements of an array of objects that are measured, evenly spaced.
            The others count as much as these on average. None: all are measured.

    Returns:
        A number of bytes.
    """
    is_array_of_objects = isinstance(value, np.ndarray) and value.dtype == object
    if max_objects is not None and is_array_of_objects and value.size > max_objects:
        step = math.ceil(value.size / max_objects)
        measured: npt.NDArray[Any] = value.ravel()[::step]
        n_all: int = value.size
        return estimate_bytes(measured, depth) * n_all // measured.size
    own_bytes, items = _look_into(value)
    if depth >= _MAX_DEPTH:
        return own_bytes
    if _ATOMS.issuperset(map(type, items)):
        # For texts this takes an eighth of the time of the way below.
        return own_bytes + sum(map(sys.getsizeof, items))
    bytes_of_items = [estimate_bytes(item, depth + 1, max_objects=max_objects) for item in items]
    return own_bytes + sum(bytes_of_items)


def _look_into(value: Any) -> tuple[int, list[Any]]:
    """Return the memory of a value itself, and the objects that it refers to."""
    n_bytes = _find_n_bytes(value)
    if n_bytes is not None:
        if isinstance(value, np.ndarray) and value.dtype == object:
            return n_bytes + _ARRAY_BYTES, value.ravel().tolist()
        return n_bytes + _ARRAY_BYTES, []
    own_bytes = sys.getsizeof(value, _ARRAY_BYTES)
    if isinstance(value, Mapping):
        return own_bytes, [*value, *value.values()]
    if isinstance(value, (tuple, list, set, frozenset)):
        return own_bytes, list(value)
    is_image_of_pillow = hasattr(value, "getbands") and hasattr(value, "size")
    if is_image_of_pillow:
        return own_bytes + int(math.prod(value.size)) * len(value.getbands()), []
    field_names = getattr(type(value), "__dataclass_fields__", ())
    return own_bytes, [getattr(value, name, None) for name in field_names]


def _find_n_bytes(value: Any) -> int | None:
    """Return ``nbytes`` of an array, a scalar of numpy's, a tensor or a memoryview; else None."""
    try:
        n_bytes = getattr(value, "nbytes", None)
    except Exception:  # noqa: BLE001  # sparse tensors raise, and any other class may
        return None
    return n_bytes if isinstance(n_bytes, int) else None


def is_plain_tensor(value: Any) -> bool:
    """Return whether ``value`` is a tensor of torch's that is just numbers in main memory."""
    # There is a tensor only if torch was imported; importing it takes seconds.
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not getattr(torch, "Tensor", None):
        return False
    is_dense = value.device.type == "cpu" and value.layout is torch.strided
    return is_dense and not value.requires_grad and not value.is_quantized
