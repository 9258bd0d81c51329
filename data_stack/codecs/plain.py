"""Plain values as Granular's records (bytes, text, integers), or as JSON."""

from __future__ import annotations

import json
import math
import operator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from data_stack.codecs.arrays import plain_number
from data_stack.codecs.codec import Codec, Column, FixedLayout
from data_stack.codecs.registry import register_codec
from data_stack.util.request_limit import check_request

_MAX_INT_BYTES = 16


@register_codec
class BytesCodec(Codec):
    """Bytes as they are (Granular's ``bytes``); a bytearray or memoryview is taken too, and comes back as bytes."""

    name, extensions = "bytes", ("bin",)

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            # bytes(5) would be five zeros, bytes of an array its memory without a word of dtype and shape
            raise TypeError(f"a column of bytes stores bytes, not {type(value).__name__}")
        return bytes(value)

    def decode(self, record: bytes) -> bytes:
        return bytes(record)


@register_codec
class Utf8Codec(Codec):
    """Text as UTF-8 (Granular's ``utf8``)."""

    name, extensions, media_type = "utf8", ("txt", "text", "transcript"), "text/plain"

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"a column of utf8 stores text, not {type(value).__name__}")
        return value.encode("utf-8")

    def decode(self, record: bytes) -> str:
        return str(record, "utf-8")


@register_codec
@dataclass(frozen=True, repr=False)
class IntCodec(Codec):
    r"""Integers of up to 16 bytes, little-endian, in the fewest bytes possible (Granular's ``int``).

    Numbers that Granular can write (0 to 127, 256 to 32767 …) have the same bytes. Others are written correctly: 128 is
    ``b"\x80\x00"``, -1 is ``b"\xff"``, which every version since 0.17 reads. Zero is one byte; an empty record, which Granular
    wrote before 0.20, reads as zero.

    Args:
        signed: False for files of Granular up to 0.13, which wrote 200 as one byte. The files themselves do not show it.
    """

    signed: bool = True

    name = "int"

    def encode(self, value: Any) -> bytes:
        number = _integer(value, "int")
        n_bytes = max(
            1, (max(number, ~number).bit_length() + 7 + self.signed) // 8
        )  # one bit is the sign
        if n_bytes > _MAX_INT_BYTES or (number < 0 and not self.signed):
            raise OverflowError(f"a column of {self.name} cannot store {_words(number)}")
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
        number = _integer(value, self.name)
        try:
            return number.to_bytes(8, "little", signed=self._signed)
        except OverflowError as error:
            raise OverflowError(f"a column of {self.name} cannot store {_words(number)}") from error

    def decode(self, record: bytes) -> int:
        if len(record) != 8:
            raise ValueError(f"a record of {self.name} has 8 bytes, this one has {len(record)}")
        return int.from_bytes(record, "little", signed=self._signed)

    def derive_layout(self, column: Column) -> FixedLayout | None:
        return self._layout

    def layout_of(self, record: bytes) -> FixedLayout | None:
        return self._layout if len(record) == 8 else None


@register_codec
class Int64Codec(_Fixed64Codec):
    """Integers from -2**63 to 2**63 - 1 (Granular's ``i64``); also takes numpy's integers and booleans."""

    name = "i64"
    _signed = True
    _layout = FixedLayout(b"", np.dtype("<i8"), ())


@register_codec
class UInt64Codec(_Fixed64Codec):
    """Integers from 0 to 2**64 - 1 (Granular's ``u64``); also takes numpy's integers and booleans."""

    name = "u64"
    _signed = False
    _layout = FixedLayout(b"", np.dtype("<u8"), ())


def _words(number: int) -> str:
    return f"{'a negative' if number < 0 else 'an'} integer of {number.bit_length()} bits"


def _integer(value: Any, column_type: str) -> int:
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

    Tuples come back as lists, numpy scalars as Python numbers. Values that JSON would change are refused: keys that are not text
    (they would come back as text), arrays and bytes. NaN and the infinities are neither written nor read.
    """

    name, extensions, media_type = "json", ("json", "jsn"), "application/json"

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
        # Values of records up to this size take a few MiB at most.
        if len(record) > 1 << 17:
            # The approximate memory of the objects, from the numbers of dicts, lists and items.
            n_bytes = (
                len(record)
                + 184 * record.count(b"{")
                + 56 * record.count(b"[")
                + 40 * record.count(b",")
            )
            check_request(n_bytes, "a record of JSON")
        try:
            return json.loads(str(record, "utf-8"), parse_constant=_finite, parse_float=_finite)
        except RecursionError as error:
            raise ValueError("JSON is nested too deeply") from error


def _check_keys(value: Any) -> None:
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if not all(isinstance(key, str) for key in part):
                raise TypeError(
                    "JSON allows only text as keys of dicts; the types msgpack and tree allow others"
                )
            parts.extend(part.values())
        elif isinstance(part, (list, tuple)):
            parts.extend(part)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is not JSON, or too large for a float")
    return number
