"""Trees of lists, dicts, numbers, text and bytes as records: Granular's ``msgpack``, and ``tree`` with arrays in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np

from data_stack.codecs.arrays import array_of, bytes_of, check_dtype, check_shape, storable
from data_stack.codecs.codec import Codec
from data_stack.codecs.registry import register_codec

#: What a list of four that stands for an array begins with, as Granular writes it.
_ARRAY_MARK = "_"
#: A record of fewer bytes cannot make msgpack allocate more than some MiB, even if it claims other lengths.
_HARMLESS_BYTES = 1 << 10


@register_codec
@dataclass(frozen=True, repr=False)
class MsgpackCodec(Codec):
    """What msgpack holds (Granular's ``msgpack``): None, booleans, 64-bit integers, floats, text, bytes, lists and dicts of them.

    Tuples come back as lists, numpy's scalars as Python's; keys of dicts may be numbers. At most 511 levels are written,
    1023 are read. Dates are refused; ``msgpack.ExtType`` and ``msgpack.Timestamp`` come back as they are.
    """

    name, extensions, media_type = "msgpack", ("mp", "msg"), "application/vnd.msgpack"

    def encode(self, value: Any) -> bytes:
        return _pack(value, _plain)

    def decode(self, record: bytes) -> Any:
        return _unpack(record, None)


@register_codec
@dataclass(frozen=True, repr=False)
class TreeCodec(Codec):
    """As msgpack, with arrays anywhere in it (Granular's ``tree``), each as ``['_', dtype.str, shape, values]``.

    A list ``['_', dtype, shape, bytes]`` that describes an array comes back as one; any other comes back as it was. Arrays are
    those of :class:`ArrayCodec`, and come back writable.
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
    """A numpy scalar as the number that msgpack stores in its place."""
    if (
        isinstance(part, (np.bool_, np.integer, np.float16, np.float32)) and part.dtype.kind != "m"
    ):  # a span is an integer to numpy
        return part.item()
    if isinstance(part, np.ndarray):
        raise TypeError("msgpack stores no arrays; the type tree does")
    raise TypeError(
        f"msgpack stores None, booleans, numbers, text, bytes, lists and dicts of them, not {type(part).__name__} ({part!r:.60})"
    )


def _unpack(record: bytes, list_hook: Any) -> Any:
    try:
        if len(record) > _HARMLESS_BYTES:
            # msgpack makes room for as many items as a list claims to have, for a thousand lists inside of each other; so it is
            # walked through once without making anything.
            walk = msgpack.Unpacker(max_buffer_size=len(record), strict_map_key=False)
            walk.feed(record)
            walk.skip()
        return msgpack.unpackb(record, strict_map_key=False, list_hook=list_hook)
    except (msgpack.UnpackException, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"this is no msgpack: {type(error).__name__} {error!s:.200}") from error


def _array_of(part: list[Any]) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Dtype and shape of the array that a list stands for; None if for nothing but itself."""
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
