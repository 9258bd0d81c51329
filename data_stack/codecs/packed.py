"""Trees of lists, dicts, numbers, text and bytes as records: Granular's ``msgpack``, and ``tree`` with arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np

from data_stack.codecs.arrays import array_of, bytes_of, check_dtype, check_shape, storable
from data_stack.codecs.codec import Codec
from data_stack.codecs.registry import register_codec

#: The first item of a list that represents an array, as Granular writes it.
_ARRAY_MARK = "_"
#: A smaller record cannot make msgpack allocate more than a few MiB, whichever lengths it claims.
_HARMLESS_BYTES = 1 << 10


@register_codec
@dataclass(frozen=True, repr=False)
class MsgpackCodec(Codec):
    """Values of msgpack (Granular's ``msgpack``): None, booleans, 64-bit integers, floats, text, bytes, lists and dicts of them.

    Tuples come back as lists, numpy scalars as Python numbers; keys of dicts may be numbers. At most 511 levels are written,
    1023 are read. Dates are refused; ``msgpack.ExtType`` and ``msgpack.Timestamp`` come back unchanged.
    """

    name, extensions, media_type = "msgpack", ("mp", "msg"), "application/vnd.msgpack"

    def encode(self, value: Any) -> bytes:
        return _pack(value, _plain)

    def decode(self, record: bytes) -> Any:
        return _unpack(record, None)


@register_codec
@dataclass(frozen=True, repr=False)
class TreeCodec(Codec):
    """As msgpack, also with arrays (Granular's ``tree``), each as ``['_', dtype.str, shape, values]``.

    A list ``['_', dtype, shape, bytes]`` that describes an array comes back as an array, other lists unchanged. Arrays are those
    of :class:`ArrayCodec`, and come back writable.
    """

    name, extensions = "tree", ("tree",)

    def encode(self, value: Any) -> bytes:
        def plain(part: Any) -> Any:
            if isinstance(part, np.ndarray):
                array = storable(part)
                return _ARRAY_MARK, array.dtype.str, array.shape, bytes_of(array)
            return _plain(part)

        return _pack(value, plain)

    def decode(self, record: bytes) -> Any:
        return _unpack(record, _with_arrays)


def _pack(value: Any, plain: Any) -> bytes:
    try:
        packed = msgpack.packb(value, default=plain)
    except RecursionError as error:  # its Python version's
        raise ValueError("a value is nested too deeply") from error
    return packed  # type: ignore[no-any-return]


def _plain(part: Any) -> Any:
    """A numpy scalar as a Python number."""
    if isinstance(part, np.generic) and part.dtype.kind in "biuf" and part.itemsize <= 8:
        return part.item()
    if isinstance(part, np.ndarray):
        raise TypeError("msgpack cannot store arrays; use the type tree")
    raise TypeError(
        f"msgpack stores None, booleans, numbers, text, bytes, lists and dicts of them, not {type(part).__name__} ({part!r:.60})"
    )


def _unpack(record: bytes, list_hook: Any) -> Any:
    try:
        if len(record) > _HARMLESS_BYTES:
            # msgpack allocates the number of items that each list claims, for up to a thousand nested lists; so the record is
            # first parsed without creating objects.
            walk = msgpack.Unpacker(max_buffer_size=len(record), strict_map_key=False)
            walk.feed(record)
            walk.skip()
        return msgpack.unpackb(record, strict_map_key=False, list_hook=list_hook)
    except (msgpack.UnpackException, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"invalid msgpack: {type(error).__name__} {error!s:.200}") from error


def _array_of(part: list[Any]) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Dtype and shape of the array that a list represents; None for other lists."""
    if len(part) != 4 or part[0] != _ARRAY_MARK or not isinstance(part[1], str) or not isinstance(part[3], bytes):
        return None
    try:
        dtype = check_dtype(part[1])
        return dtype, check_shape(part[2], dtype, len(part[3]))
    except ValueError:
        return None


def _with_arrays(part: list[Any]) -> Any:
    found = _array_of(part)
    return part if found is None else array_of(*found, part[3])
