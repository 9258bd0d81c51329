"""Pickles values for another process.

The memory of arrays stays beside the pickle, and functions of scripts are pickled by value.
"""

from __future__ import annotations

import functools
import io
import mmap
import os
import pickle
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cloudpickle
import numpy as np


class Pickled(NamedTuple):
    """A pickled value.

    Attributes:
        content: the pickle.
        buffers: the memory of arrays and torch tensors, which still belongs to the value.
        modules: the names of the modules of the functions and classes in the pickle.
    """

    content: memoryview
    buffers: list[memoryview]
    modules: set[str]


def dump(value: Any, *, in_one_piece: bool = False) -> Pickled:
    """Pickle a value; the memory of its arrays and torch tensors stays beside the pickle.

    Functions and classes that a fresh interpreter cannot import are pickled by value: those of a
    script or of a notebook's cells. When they return to the process that sent them, they are the
    original ones.

    Args:
        value: anything.
        in_one_piece: put the memory of arrays into the pickle, too.

    Raises:
        Exception: an object cannot be pickled.
    """
    file = io.BytesIO()
    buffers: list[memoryview] = []

    def keep_beside(buffer: pickle.PickleBuffer) -> None:
        buffers.append(buffer.raw())

    pickler = _Pickler(file, protocol=5, buffer_callback=None if in_one_piece else keep_beside)
    pickler.dump_value(value)
    return Pickled(file.getbuffer(), buffers, pickler.modules)


def load(pickled: Any, buffers: Sequence[Any] = ()) -> Any:
    """Unpickle what :func:`dump` returned; arrays are views of ``buffers``.

    Raises:
        Exception: an object cannot be unpickled.
    """
    return pickle.loads(pickled, buffers=buffers)  # noqa: S301  # from a parent or child process


def dump_error(error: BaseException) -> bytes | None:
    """Return the pickle of an exception in one piece; None if it does not survive pickling."""
    try:
        pickled = bytes(dump(error, in_one_piece=True).content)
        copy = load(pickled)
        survives = type(copy) is type(error) and str(copy) == str(error)
    except Exception:  # noqa: BLE001  # an object cannot be pickled or unpickled
        return None
    return pickled if survives else None


def imported_modules(value: Any) -> set[str]:
    """Return the names of the modules that another process imports to unpickle ``value``.

    Raises:
        Exception: an object cannot be pickled.
    """
    pickler = _Pickler(io.BytesIO(), protocol=5, buffer_callback=lambda buffer: None)
    pickler.dump_value(value)
    return pickler.modules


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """A pickler of cloudpickle that knows memory maps, tensors and modules of notebooks."""

    #: The modules of the functions, classes and modules in the pickle.
    modules: set[str]

    #: Modules whose functions are pickled by value during this call alone.
    _modules_by_value: list[types.ModuleType]

    def __init__(
        self,
        file: io.BytesIO,
        *,
        protocol: int,
        buffer_callback: Callable[[pickle.PickleBuffer], None] | None,
    ) -> None:
        super().__init__(file, protocol=protocol, buffer_callback=buffer_callback)
        self.modules = set()
        self._modules_by_value = []

    def dump_value(self, value: Any) -> None:
        """Pickle a value, and leave the settings of cloudpickle as they were."""
        try:
            self.dump(value)
        finally:
            for module in self._modules_by_value:
                cloudpickle.unregister_pickle_by_value(module)

    def reducer_override(self, value: Any) -> Any:
        """Return how to make ``value`` again, as ``pickle.Pickler.reducer_override`` does."""
        value_type = type(value)
        if value_type is np.ndarray:
            return NotImplemented  # numpy does it

        if value_type is types.FunctionType or isinstance(value, type):
            module_name = str(value.__module__)
            self.modules.add(module_name)
            self._pickle_by_value_if_private(module_name)
        elif value_type is types.ModuleType:
            self.modules.add(value.__name__)

        reduced = self._reduce(value)
        if reduced is not None:
            return reduced
        return super().reducer_override(value)

    def _reduce(self, value: Any) -> Any:
        """Return how to make a memory map, a code object or a tensor again; None of other
        values.
        """
        value_type = type(value)
        if value_type is np.memmap:
            return _reduce_memmap(value)
        if value_type is types.CodeType:
            # cloudpickle 3.1.3 leaves the file's name out, and tracebacks need it.
            arguments = self.dispatch_table[value_type](value)
            return _make_code, (value.co_filename, *arguments)
        if value_type.__module__ == "torch" and value_type.__name__ == "Tensor":
            return _reduce_tensor(value)
        return None

    def _pickle_by_value_if_private(self, name: str) -> None:
        """Let cloudpickle pickle a module's functions by value, if no process can import it."""
        module = sys.modules.get(name)
        package = name.partition(".")[0]
        if module is None or package == "__main__" or package in sys.builtin_module_names:
            return
        if _can_import(package):
            return
        if name not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
            self._modules_by_value.append(module)


@functools.cache
def _can_import(package: str) -> bool:
    """Return whether a finder finds a package; modules that were made by hand are not found."""
    for finder in sys.meta_path:
        if hasattr(finder, "find_spec") and finder.find_spec(package, None):
            return True
    return False


def _make_code(
    filename: str, make: Callable[..., types.CodeType], arguments: tuple[Any, ...]
) -> types.CodeType:
    return make(*arguments).replace(co_filename=filename)


def _reduce_memmap(array: np.memmap[Any, Any]) -> Any:
    """Return how to map the file of a memory map again; None if the array must be pickled."""
    file_map = array._mmap  # type: ignore[attr-defined]  # missing in numpy's types
    is_plain = (
        file_map is not None
        and array.flags.forc
        and not array.dtype.hasobject
        and array.mode != "c"
    )
    if not is_plain or not array.filename or not os.path.exists(array.filename):
        return None
    # numpy maps the file from a multiple of the granularity on.
    map_start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    map_address = np.frombuffer(file_map, dtype=np.uint8).ctypes.data
    start = map_start + array.ctypes.data - map_address
    mode = "r+" if array.mode != "r" and array.flags.writeable else "r"
    order = "C" if array.flags.c_contiguous else "F"
    path = os.path.abspath(array.filename)
    return np.memmap, (path, array.dtype, mode, start, array.shape, order)


def _reduce_tensor(tensor: Any) -> Any:
    """Return how to make a tensor from an array of its bytes.

    Returns:
        The function and its arguments; None for a tensor that torch must pickle, because it is not
        plain memory of the processor.
    """
    torch = sys.modules["torch"]
    is_in_memory = tensor.device.type == "cpu" and tensor.layout is torch.strided
    if not is_in_memory or tensor.requires_grad or tensor.is_quantized:
        return None
    if tensor.is_conj() or tensor.is_neg():
        return None
    array = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    dtype_name = str(tensor.dtype).removeprefix("torch.")
    return _make_tensor, (array, dtype_name, tuple(tensor.shape))


def _make_tensor(array: np.ndarray[Any, Any], dtype_name: str, shape: tuple[int, ...]) -> Any:
    import torch

    dtype = getattr(torch, dtype_name)
    return torch.from_numpy(array).view(dtype).reshape(shape)
