"""Bytes and text as records: what they are is what is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from data_stack.codecs.codec import Codec
from data_stack.codecs.registry import register_codec


@register_codec
@dataclass(frozen=True, repr=False)
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
@dataclass(frozen=True, repr=False)
class Utf8Codec(Codec):
    """Text as UTF-8 (Granular's ``utf8``)."""

    name, extensions, media_type = "utf8", ("txt", "text", "transcript"), "text/plain"

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"a column of utf8 stores text, not {type(value).__name__}")
        return value.encode("utf-8")

    def decode(self, record: bytes) -> str:
        return str(record, "utf-8")
