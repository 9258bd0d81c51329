"""Lets the memory of a torch tensor lie beside the pickle of a batch."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from data_stack.exception import MissingDependencyError

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("data_stack.loader.workers.tensor_parcels", "torch", "torch") from error

__all__ = ["reduced_tensor"]


def reduced_tensor(tensor: torch.Tensor) -> Any:
    """What pickle's ``reducer_override`` gives for a tensor: how to make it of an array of its bytes.

    NotImplemented, for what torch pickles itself, where it is not plainly memory of this process: on a device, sparse, quantized,
    or part of a graph.
    """
    is_plain = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.requires_grad
    if not is_plain or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return NotImplemented
    array = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    return _tensor, (array, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def _tensor(array: npt.NDArray[Any], dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    tensor: torch.Tensor = torch.from_numpy(array).view(getattr(torch, dtype)).reshape(shape)
    return tensor
