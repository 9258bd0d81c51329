"""Values as msgpack: Granular's ``array``, ``msgpack`` and ``tree``."""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, ColumnType, FixedLayout, fixed_shape
from data_stack.codecs.registry import register_codec
from data_stack.values.stacked_values import as_array, exact_array

#: dtype.str of arrays that contain their values: no Python objects, strings of variable length, or
#: fields.
_DTYPE = re.compile(
    r"[<>|=](?:[biufcV][0-9]{1,9}|[SU][0-9]{1,9}|[mM]8(?:\[[0-9]{0,9}[A-Za-z]{1,7}\])?)", re.ASCII
)
_MAX_DTYPE_LENGTH = 40
#: The maximum number of dimensions of an array, that of numpy since 2.0.
_MAX_DIMENSIONS = 64
#: The maximum size of the values of an array in bytes, that of msgpack's bin 32.
_MAX_BIN_BYTES = 2**32 - 1
#: A record up to this size cannot make msgpack allocate more than a few MiB, whichever lengths it
#: claims.
_SMALL_RECORD_BYTES = 1 << 10
#: The first item of a list that represents an array, as Granular writes it.
_ARRAY_MARK = "_"


@register_codec
class ArrayCodec(Codec):
    """Arrays of numbers, booleans, dates or fixed-width strings (Granular's ``array``).

    A record is msgpack of ``[dtype.str, shape, values in C order]``. The codec takes arrays in any
    memory order, and numbers and lists that ``numpy.asarray`` converts exactly. It returns a new,
    writable array with the byte order that was stored. Arrays of Python objects, with fields or
    with a mask are refused, as they would lose something.
    """

    name = "array"

    def encode(self, value: Any) -> bytes:
        array = _to_storable_array(value)
        return _header(array.dtype, array.shape, array.nbytes) + _values_in_c_order(array)

    def decode(self, record: bytes) -> npt.NDArray[Any]:
        return _make_array(*_parse(record))

    def derive_layout(self, column: ColumnType) -> FixedLayout | None:
        dtype = column.dtype
        shape = fixed_shape(column)
        if dtype is None or shape is None or not _is_storable(dtype):
            return None
        n_bytes = dtype.itemsize * math.prod(shape)
        if n_bytes > _MAX_BIN_BYTES:
            return None
        return FixedLayout(_header(dtype, shape, n_bytes), dtype, shape)

    def layout_of(self, record: bytes) -> FixedLayout | None:
        """Return the layout of this record; None if it is damaged, and :meth:`decode` raises."""
        try:
            dtype, shape, values = _parse(record)
        except ValueError:
            return None
        header = bytes(record[: len(record) - len(values)])
        return FixedLayout(header, dtype, shape)


@register_codec
class MsgpackCodec(Codec):
    """Values of msgpack (Granular's ``msgpack``).

    These are None, booleans, 64-bit integers, floats, text, bytes, lists and dicts of them. Tuples
    come back as lists, numpy scalars as Python numbers; keys of dicts may be numbers. At most 511
    levels are written, 1023 are read. Dates are refused; ``msgpack.ExtType`` and
    ``msgpack.Timestamp`` come back unchanged.
    """

    name = "msgpack"
    extensions = ("mp", "msg")
    media_type = "application/vnd.msgpack"

    def encode(self, value: Any) -> bytes:
        return _pack(value, plain_number)

    def decode(self, record: bytes) -> Any:
        return _unpack(record, None)


@register_codec
class TreeCodec(Codec):
    """Values of msgpack, and the arrays of :class:`ArrayCodec` (Granular's ``tree``).

    An array is stored as a list ``['_', dtype.str, shape, values in C order]``, and comes back
    writable. A list of that form which was stored as a list comes back as an array, too.
    """

    name = "tree"
    extensions = ("tree",)

    def encode(self, value: Any) -> bytes:
        return _pack(value, _describe_array_or_number)

    def decode(self, record: bytes) -> Any:
        return _unpack(record, _restore_array)


def _pack(value: Any, convert: Callable[[Any], Any]) -> bytes:
    """Return a value as msgpack.

    Args:
        value: the value.
        convert: returns values of types that msgpack lacks as values of types that it has.

    Raises:
        TypeError, ValueError, OverflowError: msgpack cannot store the value.
    """
    try:
        return msgpack.packb(value, default=convert)  # type: ignore[no-any-return]
    except RecursionError as error:  # of msgpack in pure Python; its C version raises ValueError
        raise ValueError("a value is nested too deeply") from error


def _describe_array_or_number(part: Any) -> Any:
    """Return an array as the list that represents it, and a numpy scalar as a Python number.

    Raises:
        TypeError: the value is of another type, or such an array cannot be stored.
    """
    if isinstance(part, np.ndarray):
        array = _to_storable_array(part)
        return _ARRAY_MARK, array.dtype.str, array.shape, _values_in_c_order(array)
    return plain_number(part)


def plain_number(part: Any) -> Any:
    """Return a numpy scalar as a Python number, for msgpack and JSON.

    Raises:
        TypeError: the value is not a numpy scalar, or is a number of another kind.
    """
    if isinstance(part, np.generic) and part.dtype.kind in "biuf" and part.itemsize <= 8:
        return part.item()
    raise TypeError(
        f"msgpack and JSON have no {type(part).__name__} ({part!r:.60}); "
        "the type tree holds arrays and bytes too"
    )


def _unpack(record: bytes, convert_list: Callable[[list[Any]], Any] | None) -> Any:
    """Return the value of msgpack.

    Args:
        record: the bytes.
        convert_list: called for each list; its result takes the place of the list.

    Raises:
        ValueError: the bytes are not valid msgpack.
    """
    try:
        if len(record) > _SMALL_RECORD_BYTES:
            # msgpack allocates the number of items that each list claims, for up to a thousand
            # nested lists. So the record is first parsed without creating objects.
            walk = msgpack.Unpacker(max_buffer_size=len(record), strict_map_key=False)
            walk.feed(record)
            walk.skip()
        return msgpack.unpackb(record, strict_map_key=False, list_hook=convert_list)
    except (msgpack.UnpackException, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"invalid msgpack: {type(error).__name__} {error!s:.200}") from error


def _restore_array(part: list[Any]) -> Any:
    """Return the array that a list represents, or the list."""
    if (
        len(part) != 4
        or part[0] != _ARRAY_MARK
        or not isinstance(part[1], str)
        or not isinstance(part[3], bytes)
    ):
        return part
    try:
        dtype = _parse_dtype(part[1])
        shape = _parse_shape(part[2], dtype, len(part[3]))
    except ValueError:
        return part
    return _make_array(dtype, shape, part[3])


def _to_storable_array(value: Any) -> npt.NDArray[Any]:
    """Return ``value`` as an array that its bytes, dtype and shape fully describe.

    Raises:
        TypeError, ValueError: ``value`` cannot be such an array.
    """
    if isinstance(value, (str, bytes)) and not isinstance(value, np.generic):
        raise TypeError(
            f"a column of arrays cannot store {type(value).__name__}; use the types utf8 and bytes"
        )
    array = to_exact_array(value)
    if not _is_storable(array.dtype):
        raise TypeError(
            f"cannot store an array of dtype {array.dtype} ({type(value).__name__}); "
            "convert it, or store its fields"
        )
    if array.nbytes > _MAX_BIN_BYTES:
        raise ValueError(
            f"an array of {array.nbytes} bytes exceeds the maximum size of a record, "
            f"{_MAX_BIN_BYTES} bytes"
        )
    return array


def to_exact_array(value: Any) -> npt.NDArray[Any]:
    """Return ``value`` as an array with exactly the same values.

    Raises:
        TypeError, ValueError: ``value`` cannot be such an array.
    """
    if hasattr(value, "__array__"):
        return as_array(value)
    array = exact_array(value)
    if array is not None:
        return array
    array = np.asarray(value)
    is_rounded = array.dtype.kind in "biufc"
    is_cut = False
    if array.dtype.kind in "US":
        given = np.asarray(value, dtype=object)
        is_cut = bool((array.astype(object) != given).any())
    if is_rounded or is_cut:
        raise ValueError(
            f"an array cannot hold {value!r:.60} exactly: "
            "numpy would round it, or cut zeros off text"
        )
    return array


def _values_in_c_order(array: npt.NDArray[Any]) -> memoryview:
    """Return the values in C order, without a copy if they are in C order."""
    if not array.size:
        return memoryview(b"")
    # As bytes: numpy has no buffers of dates.
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _make_array(
    dtype: np.dtype[Any], shape: tuple[int, ...], values: bytes | memoryview
) -> npt.NDArray[Any]:
    """Return a new, writable array.

    Raises:
        ValueError: the values are invalid for the dtype.
    """
    array: npt.NDArray[Any] = np.ndarray(shape, dtype, values)
    # Checked here, as they would cause errors much later.
    if dtype.kind == "b" and np.frombuffer(values, np.uint8).max(initial=0) > 1:
        raise ValueError("an array of booleans holds bytes other than 0 and 1")
    if dtype.kind == "U" and np.frombuffer(values, f"{dtype.str[0]}u4").max(initial=0) > 0x10FFFF:
        raise ValueError("an array of strings contains an invalid character")
    return array.copy()  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=256)
def _parse_dtype(text: str) -> np.dtype[Any]:
    """Return the dtype of a ``dtype.str`` that was read.

    Raises:
        ValueError: arrays of this dtype are never stored.
    """
    if len(text) <= _MAX_DTYPE_LENGTH and _DTYPE.fullmatch(text):
        with contextlib.suppress(TypeError, ValueError):
            dtype = np.dtype(text)
            if dtype.itemsize > 0:
                return dtype
    raise ValueError(f"the record of an array has the invalid dtype {text!r:.60}")


def _parse_shape(shape: object, dtype: np.dtype[Any], n_bytes: int) -> tuple[int, ...]:
    """Return a shape that was read as a tuple.

    Raises:
        ValueError: it is not a shape, or an array of it does not have ``n_bytes``.
    """
    if not isinstance(shape, (list, tuple)) or len(shape) > _MAX_DIMENSIONS:
        raise ValueError("the record of an array has an invalid shape")
    expected = dtype.itemsize
    for size in shape:
        if type(size) is not int or not 0 <= size < 2**63:
            raise ValueError("the record of an array has an invalid shape")
        expected *= size
    if expected != n_bytes:
        raise ValueError(
            f"{n_bytes} bytes of values do not fit dtype {dtype} and shape {tuple(shape)!s:.80}"
        )
    return tuple(shape)


@functools.lru_cache(maxsize=256)
def _is_storable(dtype: np.dtype[Any]) -> bool:
    """Return whether ``dtype.str`` describes a dtype, so that arrays of it can be stored."""
    if _DTYPE.fullmatch(dtype.str) is None or dtype.itemsize == 0:
        return False
    # Dtypes of other packages (bfloat16) call themselves what numpy reads as something else.
    return bool(np.dtype(dtype.str) == dtype)


@functools.lru_cache(maxsize=256)
def _header(dtype: np.dtype[Any], shape: tuple[int, ...], n_bytes: int) -> bytes:
    """Return the part of a record before the values."""
    packer = msgpack.Packer()
    start: bytes = packer.pack_array_header(3) + packer.pack(dtype.str) + packer.pack(shape)
    # The values are msgpack's bin 8, bin 16 or bin 32: a marker, then the size.
    if n_bytes < 1 << 8:
        return start + b"\xc4" + n_bytes.to_bytes(1, "big")
    if n_bytes < 1 << 16:
        return start + b"\xc5" + n_bytes.to_bytes(2, "big")
    return start + b"\xc6" + n_bytes.to_bytes(4, "big")


def _parse(record: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bytes]:
    """Return dtype, shape and values of a record.

    Raises:
        ValueError: the record is damaged.
    """
    try:
        text, shape, values = msgpack.unpackb(
            record, max_array_len=_MAX_DIMENSIONS, max_map_len=0, max_ext_len=0
        )
    except (msgpack.UnpackException, ValueError, TypeError) as error:
        raise ValueError(
            f"the record of an array of {len(record)} bytes is damaged or cut short: {error!s:.200}"
        ) from error
    if not isinstance(text, str) or not isinstance(values, bytes):
        raise ValueError("the record of an array lacks a dtype or values")
    dtype = _parse_dtype(text)
    return dtype, _parse_shape(shape, dtype, len(values)), values
