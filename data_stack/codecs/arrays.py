"""Arrays as records: Granular's, msgpack of dtype, shape and values."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, Column, FixedLayout
from data_stack.codecs.registry import register_codec
from data_stack.values.exact import as_array
from data_stack.values.stacked_values import exact_array

#: dtype.str of what has values in its own bytes: no Python objects, no strings of varying length, no fields.
_DTYPE = re.compile(r"[<>|=](?:[biufcV][0-9]{1,9}|[SU][0-9]{1,9}|[mM]8(?:\[[0-9]{0,9}[A-Za-z]{1,7}\])?)", re.ASCII)
_MAX_DIMENSIONS = 64
_MAX_BIN_BYTES = 2**32 - 1
_MAX_CODE_POINT = 0x10FFFF


@register_codec
@dataclass(frozen=True, repr=False)
class ArrayCodec(Codec):
    """Arrays of any shape and of any dtype of numbers, booleans, dates or fixed-width strings (Granular's ``array``).

    A record is msgpack of ``[dtype.str, shape, values in C order]``. Arrays in any memory order are taken, as well as what
    ``numpy.asarray`` makes of numbers and lists of them; what comes back is an array of its own, writable, with the byte order
    that was stored. Arrays of Python objects, with fields or with a mask are refused, since they would lose something.
    """

    name = "array"

    def encode(self, value: Any) -> bytes:
        array = storable(value)
        return _header(array.dtype, array.shape, array.nbytes) + bytes_of(array)

    def decode(self, record: bytes) -> npt.NDArray[Any]:
        return array_of(*_parse(record))

    def derive_layout(self, column: Column) -> FixedLayout | None:
        dtype, shape = column.dtype, column.shape
        if dtype is None or shape is None or any(size is None for size in shape) or not _is_storable(dtype):
            return None
        sizes = tuple(int(size) for size in shape if size is not None)
        n_bytes = dtype.itemsize * math.prod(sizes)
        return None if n_bytes > _MAX_BIN_BYTES else FixedLayout(_header(dtype, sizes, n_bytes), dtype, sizes)

    def layout_of(self, record: bytes) -> FixedLayout | None:
        """The layout of this record; None if it is damaged, which :meth:`decode` tells."""
        try:
            dtype, shape, values = _parse(record)
        except ValueError:
            return None
        return FixedLayout(bytes(record[: len(record) - len(values)]), dtype, shape)


def storable(value: Any) -> npt.NDArray[Any]:
    """``value`` as an array that its bytes, dtype and shape describe whole.

    Raises:
        TypeError, ValueError: there is no such array.
    """
    if isinstance(value, (str, bytes)) and not isinstance(value, np.generic):
        raise TypeError(f"a column of arrays stores arrays, not {type(value).__name__}; the types utf8 and bytes are for these")
    array = exactly_array(value)
    if not _is_storable(array.dtype):
        raise TypeError(
            f"an array of dtype {array.dtype} is not stored (from {type(value).__name__}): give it a dtype of numbers, booleans, "
            f"dates or fixed-width strings; fields belong into columns of their own"
        )
    if array.nbytes > _MAX_BIN_BYTES:
        raise ValueError(f"an array of {array.nbytes} bytes does not fit into a record, which holds {_MAX_BIN_BYTES}")
    return array


def exactly_array(value: Any) -> npt.NDArray[Any]:
    """``value`` as an array that says just the same.

    Raises:
        TypeError, ValueError: there is no such array.
    """
    if hasattr(value, "__array__"):
        return as_array(value)
    array = exact_array(value)
    if array is not None:
        return array
    array = np.asarray(value)
    given = np.asarray(value, dtype=object)
    if array.dtype.kind in "biufc" or (array.dtype.kind in "US" and bool((array.astype(object) != given).any())):
        raise ValueError(f"no array holds {value!r:.60} as it is: numpy would round numbers, and cut zeros at the end of text")
    return array


def bytes_of(array: npt.NDArray[Any]) -> memoryview:
    """The values in C order, without a copy where they lie so."""
    if not array.size:
        return memoryview(b"")
    # As bytes: numpy gives no buffer of dates.
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def array_of(dtype: np.dtype[Any], shape: tuple[int, ...], values: bytes | memoryview) -> npt.NDArray[Any]:
    """A writable array of its own.

    Raises:
        ValueError: these are no values of that dtype and shape.
    """
    array: npt.NDArray[Any] = np.ndarray(shape, dtype, values)
    # Refused here, for the reader would meet them much later.
    if dtype.kind == "b" and np.frombuffer(values, np.uint8).max(initial=0) > 1:
        raise ValueError("an array of booleans holds bytes other than 0 and 1")
    if dtype.kind == "U" and np.frombuffer(values, f"{dtype.str[0]}u4").max(initial=0) > _MAX_CODE_POINT:
        raise ValueError("an array of strings holds what is no character")
    copied: npt.NDArray[Any] = array.copy()
    return copied


@functools.lru_cache(maxsize=256)
def check_dtype(text: str) -> np.dtype[Any]:
    """The dtype of a ``dtype.str`` that was read, if it is of those that are stored.

    Raises:
        ValueError: it is not.
    """
    try:
        dtype = np.dtype(text) if len(text) <= 40 and _DTYPE.fullmatch(text) else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or dtype.itemsize == 0:
        raise ValueError(f"an array's record names the dtype {text!r:.60}, which arrays are not stored with")
    return dtype


def check_shape(shape: object, dtype: np.dtype[Any], n_bytes: int) -> tuple[int, ...]:
    """A shape that was read, if ``n_bytes`` are just what it takes.

    Raises:
        ValueError: it is not a shape, or has another size.
    """
    if not isinstance(shape, (list, tuple)) or len(shape) > _MAX_DIMENSIONS:
        raise ValueError("an array's record does not tell its shape")
    expected = dtype.itemsize
    for size in shape:
        if type(size) is not int or not 0 <= size < 2**63:
            raise ValueError("an array's record does not tell its shape")
        expected *= size
    if expected != n_bytes:
        raise ValueError(f"{n_bytes} bytes of values are no array of dtype {dtype} and shape {tuple(shape)!s:.80}")
    return tuple(shape)


@functools.lru_cache(maxsize=256)
def _is_storable(dtype: np.dtype[Any]) -> bool:
    # The last: dtypes of other packages (bfloat16) call themselves what numpy reads as something else.
    return _DTYPE.fullmatch(dtype.str) is not None and dtype.itemsize > 0 and np.dtype(dtype.str) == dtype


@functools.lru_cache(maxsize=256)
def _header(dtype: np.dtype[Any], shape: tuple[int, ...], n_bytes: int) -> bytes:
    """All of a record but the values."""
    packer = msgpack.Packer()
    return b"".join(
        (packer.pack_array_header(3), packer.pack(dtype.str), packer.pack(shape), _bin_header(n_bytes))
    )  # fmt: skip


def _bin_header(n_bytes: int) -> bytes:
    if n_bytes < 1 << 8:
        return b"\xc4" + n_bytes.to_bytes(1, "big")
    if n_bytes < 1 << 16:
        return b"\xc5" + n_bytes.to_bytes(2, "big")
    return b"\xc6" + n_bytes.to_bytes(4, "big")


def _parse(record: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bytes]:
    """Dtype, shape and values."""
    try:
        text, shape, values = msgpack.unpackb(record, max_array_len=_MAX_DIMENSIONS, max_map_len=0, max_ext_len=0)
    except (msgpack.UnpackException, ValueError, TypeError) as error:
        raise ValueError(f"an array's record of {len(record)} bytes is damaged or cut short: {error!s:.200}") from error
    if not isinstance(text, str) or not isinstance(values, bytes):
        raise ValueError("an array's record holds no dtype or no values")
    dtype = check_dtype(text)
    return dtype, check_shape(shape, dtype, len(values)), values
