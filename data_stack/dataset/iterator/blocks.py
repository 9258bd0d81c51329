"""Samples in blocks of limited memory, as estimated from their values."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

_Block = TypeVar("_Block")

_MAX_SAMPLES = 1 << 14  # of a block

#: Values that are measured of a column of objects: to measure all texts takes as long as to read them.
_MAX_MEASURED = 1024

_ARRAY_BYTES = 112  # of the object around the numbers
#: Types of values that hold no others.
_ATOMS = frozenset((str, bytes, int, float, bool, type(None)))


def in_blocks(
    n_samples: int, read: Callable[[npt.NDArray[np.intp]], _Block]
) -> Iterator[tuple[int, _Block]]:
    """What ``read`` returns for consecutive positions that together are ``0 .. n_samples - 1``, each with its first position.

    The first block is one sample; the others are as long as the samples so far were small: about 4 MiB, at most 16,384 samples.
    """
    start, length = 0, 1
    while start < n_samples:
        stop = min(start + length, n_samples)
        block = read(np.arange(start, stop, dtype=np.intp))
        n_bytes = estimate_bytes(block, max_objects=_MAX_MEASURED)
        bytes_per_sample = max(1, n_bytes // (stop - start))
        yield start, block
        # large enough that a request costs little per byte, small enough to stay in a processor's cache
        length = max(1, min(length * 8, (1 << 22) // bytes_per_sample, _MAX_SAMPLES))
        start = stop


#: Bytes of a remote file that are cached while it is read: a smaller file is fetched once, in any order.
MAX_KEPT_REMOTE_BYTES = 16 << 20


def blocks_of_rows(n_samples: int, n_bytes: float) -> npt.NDArray[np.int64]:
    """The lengths of the blocks of samples that lie one behind the other in a remote store, shape ``(n_blocks,)``.

    Args:
        n_samples: of all.
        n_bytes: of each sample.
    """
    # a window of a block-wise shuffle, 16 blocks, fits into that cache, and the pieces that two blocks share are few
    length = max(1, int((768 << 10) // n_bytes))
    lengths = np.full(-(-n_samples // length), length, dtype=np.int64)
    lengths[-1:] -= len(lengths) * length - n_samples
    return lengths


def estimate_bytes(value: Any, depth: int = 0, *, max_objects: int | None = None) -> int:
    """Roughly the memory that ``value`` takes: arrays, tensors, images, strings, containers and dataclasses are measured.

    What several values share is counted for each; what an array is a view of is not counted.

    Args:
        value: any object.
        depth: how many containers it is in; those deeper than 8 are not looked into.
        max_objects: measure only so many elements of an array of objects, evenly spaced, as if the others
            were like them; None: all.
    """
    is_array_of_objects = isinstance(value, np.ndarray) and value.dtype == object
    if max_objects is not None and is_array_of_objects and value.size > max_objects:
        step = math.ceil(value.size / max_objects)
        measured: npt.NDArray[Any] = value.ravel()[::step]
        n_all: int = value.size
        return estimate_bytes(measured, depth) * n_all // measured.size
    try:
        n_bytes = getattr(value, "nbytes", None)  # arrays, numpy scalars, tensors, memoryviews
    except Exception:  # noqa: BLE001  # sparse tensors raise, and any other class may
        n_bytes = None
    if isinstance(n_bytes, int):
        own = n_bytes + _ARRAY_BYTES
        items: Iterable[Any] = (
            value.ravel().tolist()
            if isinstance(value, np.ndarray) and value.dtype == object
            else ()
        )
    else:
        own = sys.getsizeof(value, _ARRAY_BYTES)
        if isinstance(value, Mapping):
            items = itertools.chain(value, value.values())
        elif isinstance(value, (tuple, list, set, frozenset)):
            items = value
        elif hasattr(value, "getbands") and hasattr(value, "size"):  # an image of PIL
            own += int(math.prod(value.size)) * len(value.getbands())
            items = ()
        elif hasattr(type(value), "__dataclass_fields__"):
            items = [getattr(value, name, None) for name in type(value).__dataclass_fields__]
        else:
            items = ()
    if depth >= 8:
        return own
    if isinstance(items, list) and _ATOMS.issuperset(map(type, items)):  # 8 times as fast for texts
        return own + sum(map(sys.getsizeof, items))
    return own + sum(estimate_bytes(item, depth + 1, max_objects=max_objects) for item in items)


def is_plain_tensor(value: Any) -> bool:
    """Whether this is a tensor of torch's, and nothing but numbers in this machine's memory."""
    torch = sys.modules.get(
        "torch"
    )  # a tensor can only be there if torch is; importing it takes seconds
    if torch is None or type(value) is not getattr(torch, "Tensor", None):
        return False
    is_dense = value.device.type == "cpu" and value.layout is torch.strided
    return is_dense and not value.requires_grad and not value.is_quantized
