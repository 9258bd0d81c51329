"""Pickles values for worker processes, with the memory of arrays and tensors out of band."""

from __future__ import annotations

import functools
import io
import mmap
import os
import pickle
import sys
import types
from collections.abc import Sequence
from typing import Any

import cloudpickle
import numpy as np


def dump(value: Any, *, in_one_piece: bool = False) -> tuple[memoryview, list[memoryview]]:
    """Pickle ``value``; the memory of its arrays and torch tensors is returned beside the pickle, and still belongs to ``value``.

    Functions and classes that a fresh interpreter cannot import are pickled by value: those of a script or of a notebook's cells.
    When they return to the process that sent them, they are the original ones.

    Args:
        value: anything.
        in_one_piece: whether the arrays are in the pickle, too.

    Raises:
        Exception: an object cannot be pickled.
    """
    file, buffers = io.BytesIO(), list[memoryview]()
    pickler = _Pickler(file, protocol=5, buffer_callback=None if in_one_piece else lambda buffer: buffers.append(buffer.raw()))
    try:
        pickler.dump(value)
    finally:
        for module in pickler.by_value:  # leave cloudpickle's settings as they were
            cloudpickle.unregister_pickle_by_value(module)
    return file.getbuffer(), buffers


def load(pickled: Any, buffers: Sequence[Any] = ()) -> Any:
    """Unpickle what :func:`dump` returned; arrays are views of ``buffers``.

    Raises:
        Exception: an object cannot be unpickled.
    """
    return pickle.loads(pickled, buffers=buffers)  # noqa: S301  # from a parent or child process


def dump_error(error: BaseException) -> bytes | None:
    """The pickle of an exception in one piece; None if it does not survive pickling."""
    try:
        pickled = bytes(dump(error, in_one_piece=True)[0])
        copy = load(pickled)
        return pickled if type(copy) is type(error) and str(copy) == str(error) else None
    except Exception:  # noqa: BLE001  # an object cannot be pickled or unpickled
        return None


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    def __init__(self, file: io.BytesIO, **options: Any) -> None:
        super().__init__(file, **options)
        self.by_value: list[types.ModuleType] = []

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind is np.ndarray:
            return NotImplemented
        if kind is np.memmap:
            if (reopened := _reduce_memmap(value)) is not None:
                return reopened
        elif kind is types.FunctionType or isinstance(value, type):
            self._look_at_module(value.__module__)
        elif kind.__module__ == "torch" and kind.__name__ == "Tensor" and (reduced := _reduce_tensor(value)) is not None:
            return reduced
        return super().reducer_override(value)

    def _look_at_module(self, name: str | None) -> None:
        package, module = str(name).partition(".")[0], sys.modules.get(str(name))
        if module is None or package == "__main__" or package in sys.builtin_module_names:
            return
        if not _can_import(package) and name not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
            self.by_value.append(module)


@functools.cache
def _can_import(package: str) -> bool:
    return any(finder.find_spec(package, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))


def _reduce_memmap(array: np.memmap[Any, Any]) -> Any:
    """Reopen a memory map of a file by its name; None for other arrays, which are pickled."""
    file_map = array._mmap  # type: ignore[attr-defined]  # missing in numpy's types
    if file_map is None or not array.filename or not array.flags.forc or array.dtype.hasobject or array.mode == "c":
        return None
    if not os.path.exists(array.filename):
        return None
    first = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY  # where the map of the file begins
    start = first + array.ctypes.data - np.frombuffer(file_map, dtype=np.uint8).ctypes.data
    mode = "r" if array.mode == "r" or not array.flags.writeable else "r+"
    order = "C" if array.flags.c_contiguous else "F"
    return np.memmap, (os.path.abspath(array.filename), array.dtype, mode, start, array.shape, order)


def _reduce_tensor(tensor: Any) -> Any:
    """Reduce a torch tensor to an array of its bytes; None if it is not plain CPU memory, which torch pickles."""
    torch = sys.modules["torch"]
    is_plain = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.requires_grad
    if not is_plain or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return None
    array = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    return _tensor, (array, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def _tensor(array: np.ndarray[Any, Any], dtype: str, shape: tuple[int, ...]) -> Any:
    import torch

    return torch.from_numpy(array).view(getattr(torch, dtype)).reshape(shape)
