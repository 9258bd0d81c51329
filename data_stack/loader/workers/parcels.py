"""Takes a value apart into a small pickle, and the memory of its arrays beside it, which is not pickled."""

from __future__ import annotations

import io
import pickle
import sys
import types
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "ByteArray",
    "Parcel",
    "Spans",
    "aligned",
    "contents_of",
    "know_nameless",
    "named",
    "pickled_error",
    "reduced_pieces",
    "spans_of",
]

ByteArray = npt.NDArray[np.uint8]

Spans = list[tuple[int, int, bool]]
"""Where buffers lie in a piece of memory: start, stop, and whether what is made of them may not be written to."""

_ALIGNMENT_BYTES = 64  # a cache line; wide instructions want no less
_LONG_VALUE_BYTES = 4096  # from here on, values have a buffer each; shorter ones are joined


class Parcel:
    """A value, taken apart. Arrays, torch tensors, and columns of bytes or strings are not copied into the pickle.

    Args:
        value: a batch or an error of a worker. Functions and classes that only the consumer's process can import are named, not
            sent: they came from there.

    Raises:
        Exception: whatever the value raises if it does not pickle.

    Attributes:
        pickle: what is left without the buffers.
        buffers: the memory beside it; it belongs to ``value``.
    """

    def __init__(self, value: Any) -> None:
        self.buffers: list[memoryview] = []
        file = io.BytesIO()
        try:
            _ParcelPickler(file, protocol=5, buffer_callback=self._add).dump(value)
            self.pickle = file.getbuffer()
        except Exception:  # noqa: BLE001  # such as a class that was made inside of a function
            from cloudpickle import dumps  # rarely needed, and 15 ms

            self.buffers.clear()
            self.pickle = memoryview(dumps(value, protocol=5, buffer_callback=self._add))

    def _add(self, buffer: pickle.PickleBuffer) -> None:
        self.buffers.append(buffer.raw())


def contents_of(pickled: Any, buffers: Sequence[Any]) -> Any:
    """The value of a parcel; its arrays are views of ``buffers``.

    Raises:
        Exception: whatever the value raises if it cannot be put together here.
    """
    return pickle.loads(pickled, buffers=buffers)  # noqa: S301  # of our own worker


def pickled_error(error: BaseException) -> tuple[bytes, list[bytes]] | None:
    """An exception as a parcel, its pickle and buffers, if it comes out of that as what it was."""
    try:
        parcel = Parcel(error)
        pickled, buffers = bytes(parcel.pickle), [bytes(buffer) for buffer in parcel.buffers]
        copy = contents_of(pickled, buffers)
        if type(copy) is type(error) and str(copy) == str(error):
            return pickled, buffers
    except Exception:  # noqa: BLE001  # whatever an object raises instead of being pickled, or of coming to life again
        return None
    return None


def spans_of(buffers: Sequence[memoryview], start: int = 0) -> tuple[Spans, int]:
    """Where buffers can lie one after the other from a position on, and the end of the last one."""
    spans: Spans = []
    stop = start
    for buffer in buffers:
        start = aligned(stop)
        stop = start + buffer.nbytes
        spans.append((start, stop, buffer.readonly))
    return spans, stop


def aligned(position: int) -> int:
    """Where a buffer may begin from a position on."""
    return -(-position // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


class _ParcelPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind is np.ndarray:
            if value.dtype == object:
                return _reduced_objects(value)
            if (joined := reduced_pieces(value)) is not None:
                return joined
            if value.dtype.kind in "mM":
                return _of_dates, (value.view(np.int64), value.dtype)  # the buffer protocol has no dates
        elif kind is types.FunctionType or isinstance(value, type):
            if value.__module__ not in sys.modules or value.__module__ == "__main__":
                return _reduced_name(value)
        elif (torch := sys.modules.get("torch")) is not None and kind is torch.Tensor:
            from data_stack.loader.workers.tensor_parcels import reduced_tensor  # needs torch, which is there

            return reduced_tensor(value)
        return NotImplemented


def reduced_pieces(array: npt.NDArray[Any]) -> Any:
    """How an array is pickled whose memory is not in one piece, and which numpy would copy into the pickle; None for others."""
    return None if array.flags.forc or array.dtype.hasobject else (_same, (np.ascontiguousarray(array),))


def _same(value: Any) -> Any:
    return value


def _of_dates(value: npt.NDArray[np.int64], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return value.view(dtype)


def _reduced_objects(column: npt.NDArray[Any]) -> Any:
    values = column.ravel().tolist()
    types_there = set(map(type, values))
    if types_there == {bytes}:
        if sum(map(len, values)) >= _LONG_VALUE_BYTES * len(values):
            return _bytes_column, (column.shape, [pickle.PickleBuffer(value) for value in values])
        return _joined_column, (column.shape, _as_array(b"".join(values)), np.array([len(value) for value in values]), False)
    if types_there == {str}:
        joined = "".join(values).encode("utf-8", "surrogatepass")
        return _joined_column, (column.shape, _as_array(joined), np.array([len(value) for value in values]), True)
    return NotImplemented


def _as_array(data: bytes) -> ByteArray:
    return np.frombuffer(data, dtype=np.uint8)


def _bytes_column(shape: tuple[int, ...], values: list[Any]) -> npt.NDArray[Any]:
    return _column(shape, [bytes(value) for value in values])


def _joined_column(shape: tuple[int, ...], joined: ByteArray, lengths: npt.NDArray[np.int64], is_text: bool) -> npt.NDArray[Any]:
    whole = str(joined.data, "utf-8", "surrogatepass") if is_text else bytes(joined)
    stops = np.cumsum(lengths).tolist()
    return _column(shape, [whole[start:stop] for start, stop in zip([0, *stops], stops, strict=False)])


def _column(shape: tuple[int, ...], values: list[Any]) -> npt.NDArray[Any]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column.reshape(shape)


# What was defined in a script, in a cell of a notebook, or in another module that a worker cannot import, was sent to it by
# value, and is not to be found there by its name. In the consumer's process it is.
_NAMED: dict[tuple[str, str], Any] = {}


def named(module: str, name: str) -> Any:
    """What a module of this process has under a name, which may have dots.

    Raises:
        KeyError: there is no such module.
        AttributeError: it has no such name.
    """
    return reduce(getattr, name.split("."), sys.modules[module])


def know_nameless(names: Sequence[tuple[str, str]]) -> None:
    """Have this worker know which functions and classes have a name that leads nowhere in the consumer's process."""
    _NAMELESS.update(names)


_NAMELESS: set[tuple[str, str]] = set()


def _reduced_name(value: Any) -> Any:
    if "<" in value.__qualname__ or (value.__module__, value.__qualname__) in _NAMELESS:  # made inside of a function
        raise pickle.PicklingError(f"{value.__qualname__} has no name in {value.__module__}")
    _NAMED[value.__module__, value.__qualname__] = value  # so that the worker can try whether an error survives
    return _named, (value.__module__, value.__qualname__)


def _named(module: str, name: str) -> Any:
    if (module, name) in _NAMED:
        return _NAMED[module, name]
    return named(module, name)
