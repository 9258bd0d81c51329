"""Writes tensors as files of ``torch.save``."""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from data_stack.exception import ConfigError
from data_stack.formats.numpy_arrays import WriteOnly


def tensor_of(array: npt.NDArray[Any], dtype: str) -> torch.Tensor:
    """Return a tensor of the values of an array.

    Args:
        array: the values.
        dtype: the name of a dtype in torch, such as ``"bfloat16"``.

    Raises:
        TypeError: torch lacks the dtype, or the dtype of the array.
    """
    torch_dtype = getattr(torch, dtype, None)
    if not isinstance(torch_dtype, torch.dtype) or not isinstance(array, np.ndarray):
        raise TypeError(
            f"expected an array and a dtype of torch, got {type(array).__name__} and {dtype!r:.40}"
        )
    return torch.from_numpy(array).to(torch_dtype)


def save_tensors(file: Any, tensors: Any) -> None:
    """Write tensors by ``torch.save``.

    Args:
        file: any binary file open for writing.
        tensors: a tensor, or a dict, list or tuple of them.
    """
    torch.save(tensors, file)


def write_tensor(
    file: Any, blocks: Iterable[npt.ArrayLike], *, shape: Sequence[int], dtype: npt.DTypeLike
) -> None:
    """Write one tensor from blocks of rows, without holding all of it in memory.

    ``torch.load`` reads it.

    Args:
        file: any binary file open for writing; it need not be able to seek.
        blocks: arrays of shape ``(k, *shape[1:])`` that add up to ``shape``, converted to ``dtype``
            if need be.
        shape: the shape of the tensor.
        dtype: bool, or an integer, float or complex dtype that torch has had since 1.6; uint16, for
            example, is a later one.

    Raises:
        ConfigError: the blocks do not add up to ``shape``, or ``dtype`` is unsupported.
    """
    stored_dtype: np.dtype[Any] = np.dtype(dtype).newbyteorder("<")
    tensor_shape = tuple(int(size) for size in shape)
    n_elements = math.prod(tensor_shape)
    storage = _Storage(_storage_of_dtype(stored_dtype), n_elements)
    pickled = io.BytesIO()
    _Pickler(pickled, protocol=2).dump(_Tensor(storage, tensor_shape))

    stream_of_file: Any = WriteOnly(file)
    with zipfile.ZipFile(stream_of_file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), pickled.getvalue())
        archive.writestr(zipfile.ZipInfo("archive/byteorder"), b"little")
        n_written = 0
        with archive.open(zipfile.ZipInfo("archive/data/0"), "w", force_zip64=True) as stream:
            for block in blocks:
                array = np.ascontiguousarray(block, stored_dtype)
                n_written += array.size
                stream.write(array.tobytes())
        if n_written != n_elements:
            raise ConfigError(
                f"the blocks have {n_written} elements, but shape {tensor_shape} has {n_elements}"
            )
        archive.writestr(zipfile.ZipInfo("archive/version"), b"3\n")


def _storage_of_dtype(dtype: np.dtype[Any]) -> str:
    """Return the name of torch's storage for a dtype.

    Raises:
        ConfigError: torch has none.
    """
    try:
        tensor = torch.from_numpy(np.empty(0, dtype.newbyteorder("=")))
        storage = tensor.type().removeprefix("torch.").replace("Tensor", "Storage")
        _Storage(storage, 0)
    except (TypeError, AttributeError) as error:
        raise ConfigError(
            f"torch.save() cannot store a tensor of dtype {dtype} in this layout"
        ) from error
    return storage


class _Storage:
    """Represents the bytes of the tensor in the pickle; torch reads them from ``data/0``."""

    def __init__(self, name: str, n_elements: int) -> None:
        self.persistent_id = ("storage", getattr(torch, name), "0", "cpu", n_elements)


class _Tensor:
    """Pickles as the tensor of a shape on a storage, as ``torch.save`` does."""

    def __init__(self, storage: _Storage, shape: tuple[int, ...]) -> None:
        self._storage = storage
        self._shape = shape

    def __reduce__(self) -> tuple[Any, ...]:
        offset = 0
        strides = torch.empty(self._shape, device="meta").stride()
        requires_grad = False
        hooks: OrderedDict[Any, Any] = OrderedDict()
        arguments = (self._storage, offset, self._shape, strides, requires_grad, hooks)
        return torch._utils._rebuild_tensor_v2, arguments


class _Pickler(pickle.Pickler):
    """Pickles a storage as a reference to its bytes, and any other object as usual."""

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, _Storage):
            return obj.persistent_id
        return None
