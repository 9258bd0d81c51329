"""Plain values as Granular's records (bytes, text, integers), or as JSON."""

from __future__ import annotations

import json
import math
import operator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from data_stack.codecs.arrays import plain_number
from data_stack.codecs.codec import Codec, ColumnType, FixedLayout
from data_stack.codecs.registry import register_codec
from data_stack.util.request_limit import check_request
from data_stack.util.untrusted_text import distinct_fields
from data_stack.values.text_numbers import float_of

#: The maximum size of an integer of the type ``int``, that of Granular's.
_MAX_INT_BYTES = 16
#: The values of JSON records up to this size take a few MiB at most.
_SMALL_JSON_BYTES = 1 << 17

# The sizes of the objects that JSON becomes in CPython, in bytes.
_EMPTY_DICT_BYTES = 184
_EMPTY_LIST_BYTES = 56
_ITEM_BYTES = 40


@register_codec
class BytesCodec(Codec):
    """Bytes as they are (Granular's ``bytes``).

    A bytearray or memoryview can be stored, too, and comes back as bytes.
    """

    name = "bytes"
    extensions = ("bin",)

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            # bytes(5) would be five zeros, and bytes(array) would lose the dtype and shape.
            raise TypeError(f"a column of bytes stores bytes, not {type(value).__name__}")
        return bytes(value)

    def decode(self, record: bytes) -> bytes:
        return bytes(record)


@register_codec
class Utf8Codec(Codec):
    """Text as UTF-8 (Granular's ``utf8``)."""

    name = "utf8"
    extensions = ("txt", "text", "transcript")
    media_type = "text/plain"

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"a column of utf8 stores text, not {type(value).__name__}")
        return value.encode("utf-8")

    def decode(self, record: bytes) -> str:
        return str(record, "utf-8")


@register_codec
@dataclass(frozen=True, repr=False)
class IntCodec(Codec):
    r"""Integers of up to 16 bytes, little-endian, in the fewest bytes (Granular's ``int``).

    Numbers that Granular can write (0 to 127, 256 to 32767 …) have the same bytes. Granular cannot
    write the others: 128 is ``b"\x80\x00"`` here and -1 is ``b"\xff"``, which Granular reads since
    0.17. Zero is one byte; an empty record, which Granular wrote before 0.20, reads as zero.

    Args:
        signed: False for files of Granular up to 0.13, which wrote 200 as one byte. Such files do
            not say that they are unsigned.
    """

    signed: bool = True

    name = "int"

    def encode(self, value: Any) -> bytes:
        number = _as_integer(value, self.name)
        # In two's complement, -2**n needs as many bits as 2**n - 1, and one for the sign.
        n_bits = max(number, ~number).bit_length()
        if self.signed:
            n_bits += 1
        n_bytes = max(1, (n_bits + 7) // 8)
        if n_bytes > _MAX_INT_BYTES or (number < 0 and not self.signed):
            raise OverflowError(f"a column of {self.name} cannot store {_describe_size(number)}")
        return number.to_bytes(n_bytes, "little", signed=self.signed)

    def decode(self, record: bytes) -> int:
        if len(record) > _MAX_INT_BYTES:
            raise ValueError(
                f"a record of int has at most {_MAX_INT_BYTES} bytes, this one has {len(record)}"
            )
        return int.from_bytes(record, "little", signed=self.signed)


class _Fixed64Codec(Codec):
    """Integers of 8 bytes, little-endian."""

    _signed: ClassVar[bool]
    _layout: ClassVar[FixedLayout]

    def encode(self, value: Any) -> bytes:
        number = _as_integer(value, self.name)
        try:
            return number.to_bytes(8, "little", signed=self._signed)
        except OverflowError as error:
            raise OverflowError(
                f"a column of {self.name} cannot store {_describe_size(number)}"
            ) from error

    def decode(self, record: bytes) -> int:
        if len(record) != 8:
            raise ValueError(f"a record of {self.name} has 8 bytes, this one has {len(record)}")
        return int.from_bytes(record, "little", signed=self._signed)

    def derive_layout(self, column: ColumnType) -> FixedLayout | None:
        return self._layout

    def layout_of(self, record: bytes) -> FixedLayout | None:
        return self._layout if len(record) == 8 else None


@register_codec
class Int64Codec(_Fixed64Codec):
    """Integers from -2**63 to 2**63 - 1 (Granular's ``i64``), numpy's integers and booleans too."""

    name = "i64"
    _signed = True
    _layout = FixedLayout(b"", np.dtype("<i8"), ())


@register_codec
class UInt64Codec(_Fixed64Codec):
    """Integers from 0 to 2**64 - 1 (Granular's ``u64``), numpy's integers and booleans too."""

    name = "u64"
    _signed = False
    _layout = FixedLayout(b"", np.dtype("<u8"), ())


def _describe_size(number: int) -> str:
    """Describe an integer by its size, as its digits may be too many to show."""
    article = "a negative" if number < 0 else "an"
    return f"{article} integer of {number.bit_length()} bits"


def _as_integer(value: Any, column_type: str) -> int:
    """Return an integer of Python or numpy, or a boolean of numpy, as Python's integer.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(value, np.bool_):
        return int(value)
    try:
        return operator.index(value)
    except TypeError as error:
        raise TypeError(
            f"a column of {column_type} stores integers, not {type(value).__name__} ({value!r:.60})"
        ) from error


@register_codec
class JsonCodec(Codec):
    """JSON in UTF-8: None, booleans, numbers, text, lists and dicts of them whose keys are text.

    Tuples come back as lists, numpy scalars as Python numbers. Other values that JSON would change
    are refused: arrays, bytes, and dicts with keys that are not text, which would come back as
    text. NaN and the infinities are neither written nor read, and an object that has a name twice
    is not read.
    """

    name = "json"
    extensions = ("json", "jsn")
    media_type = "application/json"

    def encode(self, value: Any) -> bytes:
        try:
            text = json.dumps(
                value,
                ensure_ascii=False,
                allow_nan=False,
                separators=(",", ":"),
                default=plain_number,
            )
        except RecursionError as error:
            raise ValueError("a value is nested too deeply for JSON") from error
        _check_keys(value)
        return text.encode("utf-8")

    def decode(self, record: bytes) -> Any:
        if len(record) > _SMALL_JSON_BYTES:
            check_request(_estimate_memory(record), "a record of JSON")
        text = str(record, "utf-8")
        try:
            return json.loads(
                text,
                parse_constant=_parse_finite,
                parse_float=_parse_finite,
                # Otherwise the last of two equal names would replace the first in silence.
                object_pairs_hook=distinct_fields,
            )
        except RecursionError as error:
            raise ValueError("JSON is nested too deeply") from error


def _estimate_memory(record: bytes) -> int:
    """Estimate the memory of the objects of JSON in bytes, from the numbers of dicts and items."""
    n_dicts = record.count(b"{")
    n_lists = record.count(b"[")
    n_items = record.count(b",")
    objects_bytes = _EMPTY_DICT_BYTES * n_dicts + _EMPTY_LIST_BYTES * n_lists
    return len(record) + objects_bytes + _ITEM_BYTES * n_items


def _check_keys(value: Any) -> None:
    """Check that all keys of dicts within a value are text.

    Raises:
        TypeError: one is not; JSON would turn it into text.
    """
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if not all(isinstance(key, str) for key in part):
                raise TypeError(
                    "JSON allows only text as keys of dicts; "
                    "the types msgpack and tree allow others"
                )
            parts.extend(part.values())
        elif isinstance(part, (list, tuple)):
            parts.extend(part)


def _parse_finite(text: str) -> float:
    """Parse a number, and refuse NaN and the infinities, which JSON does not have.

    A number that would be rounded to 0 is refused as one that would be rounded to infinity is.
    """
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is not JSON, or too large for a float")
    if number == 0 and float_of(text) is None:
        raise ValueError(f"{text:.40} is too small for a float")
    return number
