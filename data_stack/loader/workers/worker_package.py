"""What worker processes need to make batches, in one piece of memory that all of them share."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import sys
import types
from typing import Any

import cloudpickle
import numpy as np

from data_stack.exception import ConfigError
from data_stack.loader.jobs import BatchMaker
from data_stack.loader.workers.anonymous_memory import anonymous_memory
from data_stack.loader.workers.parcels import Spans, named, reduced_pieces, spans_of

__all__ = ["packed_for_workers", "pickled_for_workers"]


def packed_for_workers(maker: BatchMaker) -> tuple[int, Spans, list[tuple[str, str]]]:
    """Write a maker of batches into shared memory.

    Functions and classes that a fresh interpreter could not import go by value: those of a script or of a notebook's cells. The
    memory of arrays lies beside the pickle, and workers have their arrays in it, so it exists once for all of them.

    Returns:
        A descriptor that the caller closes; where in it the pickle and the arrays lie; and module and name of those functions and
        classes that are not to be found by them, since they were made inside of a function.

    Raises:
        ConfigError: something cannot be sent; the message says what.
        OSError: there is no room.
    """
    try:
        pickled, buffers, nameless = _pickled({"maker": maker, "argv": list(sys.argv)})
    except Exception as error:  # whatever an object raises instead of being pickled
        raise ConfigError(f"{_culprit(maker)} cannot be sent to worker processes: {_said(error)}. {_ADVICE}") from error
    views = [pickled, *buffers]
    spans, n_bytes = spans_of(views)
    descriptor = anonymous_memory(n_bytes)
    try:
        for view, (start, _, _) in zip(views, spans, strict=True):
            _write(descriptor, view, start)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, spans, nameless


def pickled_for_workers(value: Any) -> tuple[bytes, list[tuple[str, str]]]:
    """A pickle, in one piece, for fresh interpreters; functions and classes as in :func:`packed_for_workers`.

    Returns:
        The pickle, and module and name of functions and classes that are not to be found by them.

    Raises:
        Exception: whatever an object raises instead of being pickled.
    """
    file = io.BytesIO()
    pickler = _PackagePickler(file, protocol=5)
    try:
        pickler.dump(value)
    finally:
        pickler.forget_modules()
    return file.getvalue(), pickler.nameless


_ADVICE = "Use worker_kind='threads', or let it open what it needs when it is first used"


def _pickled(value: Any) -> tuple[memoryview, list[memoryview], list[tuple[str, str]]]:
    file, buffers = io.BytesIO(), list[memoryview]()
    pickler = _PackagePickler(file, protocol=5, buffer_callback=lambda buffer: buffers.append(buffer.raw()))
    try:
        pickler.dump(value)
    finally:
        pickler.forget_modules()
    return file.getbuffer(), buffers, pickler.nameless


class _PackagePickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    def __init__(self, file: io.BytesIO, **options: Any) -> None:
        super().__init__(file, **options)
        self._can_import: dict[str, bool] = {}
        self._by_value: list[types.ModuleType] = []
        self.nameless: list[tuple[str, str]] = []

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind is np.memmap:
            if (reopened := _reduced_memmap(value)) is not None:
                return reopened
        elif kind is np.ndarray:
            return reduced_pieces(value) or NotImplemented
        elif kind is types.FunctionType or isinstance(value, type):
            self._look_at_module(value.__module__)
            self._look_at_name(value)
        return super().reducer_override(value)

    def forget_modules(self) -> None:
        """Let other users of cloudpickle have its settings as they were."""
        for module in self._by_value:
            cloudpickle.unregister_pickle_by_value(module)

    def _look_at_module(self, name: str | None) -> None:
        module = sys.modules.get(name or "")
        if name is None or module is None or name.partition(".")[0] in _IMPORTABLE or name in self._can_import:
            return
        self._can_import[name] = _can_import(name, module)
        if not self._can_import[name] and name not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
            self._by_value.append(module)

    def _look_at_name(self, value: Any) -> None:
        # What cloudpickle makes of a class may have lost all of its qualified name but the last part.
        for name in {value.__qualname__, value.__name__}:
            try:
                is_there = named(value.__module__, name) is value
            except (AttributeError, KeyError):
                is_there = False
            if not is_there:
                self.nameless.append((value.__module__, name))


_IMPORTABLE = {"__main__", "data_stack", "numpy", "torch", *sys.builtin_module_names, *sys.stdlib_module_names}


def _can_import(name: str, module: types.ModuleType) -> bool:
    """Whether a fresh interpreter with our ``sys.path`` finds a module, which need not be so because it is there.

    It may find another one of that name, if ``sys.path`` has changed since.
    """
    places: Any = None
    spec: Any = None
    for end, character in enumerate(f"{name}."):
        if character == ".":
            finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
            spec = next(filter(None, (finder.find_spec(name[:end], places) for finder in finders)), None)
            if spec is None:
                return False
            places = spec.submodule_search_locations
    ours = getattr(module, "__spec__", None)
    if spec is None or ours is None or not (spec.has_location and ours.has_location):
        return True
    is_ours: bool = os.path.realpath(spec.origin) == os.path.realpath(ours.origin)
    return is_ours


def _reduced_memmap(array: np.memmap[Any, Any]) -> Any:
    """A map of a file is opened again, unless it is none or has been cut up."""
    file_map = array._mmap  # type: ignore[attr-defined]  # numpy does not say so in its types
    if file_map is None or not array.filename or not array.flags.forc or array.dtype.hasobject or array.mode == "c":
        return None
    if not os.path.exists(array.filename):
        return None
    first = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY  # where the map of the file begins
    start = first + array.ctypes.data - np.frombuffer(file_map, dtype=np.uint8).ctypes.data
    mode = "r" if array.mode == "r" or not array.flags.writeable else "r+"
    order = "C" if array.flags.c_contiguous else "F"
    return _opened_memmap, (os.path.abspath(array.filename), array.dtype, mode, start, array.shape, order)


def _opened_memmap(path: str, dtype: Any, mode: Any, offset: int, shape: tuple[int, ...], order: Any) -> Any:
    return np.memmap(path, dtype=dtype, mode=mode, offset=offset, shape=shape, order=order)


def _culprit(maker: BatchMaker) -> str:
    """Which of the things a loader was given cannot be pickled."""
    iterator = maker.stacks.__getstate__()["_iterator"]  # as it is pickled
    for what, part in (("the iterator", iterator), ("collate", maker._collate), ("the transform", maker._transform)):
        try:
            _pickled(part)
        except Exception:  # noqa: BLE001  # as above
            return f"{what} {part!r:.200}"
    return "what a loader was given"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if not isinstance(error, pickle.PicklingError) else str(error)


def _write(descriptor: int, view: memoryview, start: int) -> None:
    rest = view.cast("B") if view.nbytes else view
    while rest.nbytes:
        n_written = os.pwrite(descriptor, rest, start)
        rest, start = rest[n_written:], start + n_written
