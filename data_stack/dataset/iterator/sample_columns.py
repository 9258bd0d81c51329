"""Facts about the values of samples: the memory that they take, plain tensors among them."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from data_stack.exception import MissingDependencyError


def is_plain_tensor(value: Any) -> bool:
    """Whether this is a tensor of torch's, and nothing but numbers in this machine's memory."""
    torch = sys.modules.get("torch")  # a tensor can only be there if torch is; importing it takes seconds
    if torch is None or type(value) is not getattr(torch, "Tensor", None):
        return False
    is_dense = value.device.type == "cpu" and value.layout is torch.strided
    return is_dense and not value.requires_grad and not value.is_quantized


def torch_module() -> Any:
    """torch, for values that are tensors.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import torch  # heavy, optional
    except ImportError as error:
        raise MissingDependencyError("reading kept samples that are tensors", "torch", "torch") from error
    return torch


_ARRAY_BYTES = 112  # of the object around the numbers
_MAX_DEPTH = 8


def estimate_bytes(value: Any, depth: int = 0) -> int:
    """Roughly the memory that ``value`` takes: arrays, tensors, images, strings, containers and dataclasses are measured.

    What several values share is counted for each; what an array is a view of is not counted.
    """
    try:
        n_bytes = getattr(value, "nbytes", None)  # arrays, numpy scalars, tensors, memoryviews
    except Exception:  # noqa: BLE001  # sparse tensors raise, and any other class may
        n_bytes = None
    if isinstance(n_bytes, int):
        own = n_bytes + _ARRAY_BYTES
        items: Iterable[Any] = value.ravel().tolist() if isinstance(value, np.ndarray) and value.dtype == object else ()
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
    return own + sum(estimate_bytes(item, depth + 1) for item in items) if depth < _MAX_DEPTH else own
