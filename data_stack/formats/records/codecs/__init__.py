"""How values become records: Granular's types, byte for byte, and others."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_stack.formats.records.codecs.arrays import ArrayCodec
    from data_stack.formats.records.codecs.codec import Codec, Column, FixedLayout, FunctionCodec
    from data_stack.formats.records.codecs.flac import FlacCodec
    from data_stack.formats.records.codecs.images import ImageCodec, PngCodec, WebpCodec
    from data_stack.formats.records.codecs.integers import Int64Codec, IntCodec, UInt64Codec
    from data_stack.formats.records.codecs.jpeg import JpgCodec
    from data_stack.formats.records.codecs.json_text import JsonCodec
    from data_stack.formats.records.codecs.npy import NpyCodec
    from data_stack.formats.records.codecs.packed import MsgpackCodec, TreeCodec
    from data_stack.formats.records.codecs.plain import BytesCodec, Utf8Codec
    from data_stack.formats.records.codecs.sound import SoundCodec
    from data_stack.formats.records.codecs.types import BUILT_IN_TYPES, Codecs, codec_of
    from data_stack.formats.records.codecs.video import Mp4Codec, VideoCodec, WebmCodec
    from data_stack.formats.records.codecs.wav import WavCodec
    from data_stack.formats.records.codecs.zstd import ZstdCodec

_MODULES = {
    "ArrayCodec": "arrays",
    "BUILT_IN_TYPES": "types",
    "BytesCodec": "plain",
    "Codec": "codec",
    "Codecs": "types",
    "Column": "codec",
    "FixedLayout": "codec",
    "FlacCodec": "flac",
    "FunctionCodec": "codec",
    "ImageCodec": "images",
    "Int64Codec": "integers",
    "IntCodec": "integers",
    "JpgCodec": "jpeg",
    "JsonCodec": "json_text",
    "Mp4Codec": "video",
    "MsgpackCodec": "packed",
    "NpyCodec": "npy",
    "PngCodec": "images",
    "SoundCodec": "sound",
    "TreeCodec": "packed",
    "UInt64Codec": "integers",
    "Utf8Codec": "plain",
    "VideoCodec": "video",
    "WavCodec": "wav",
    "WebmCodec": "video",
    "WebpCodec": "images",
    "ZstdCodec": "zstd",
    "codec_of": "types",
}

__all__ = [
    "BUILT_IN_TYPES",
    "ArrayCodec",
    "BytesCodec",
    "Codec",
    "Codecs",
    "Column",
    "FixedLayout",
    "FlacCodec",
    "FunctionCodec",
    "ImageCodec",
    "Int64Codec",
    "IntCodec",
    "JpgCodec",
    "JsonCodec",
    "Mp4Codec",
    "MsgpackCodec",
    "NpyCodec",
    "PngCodec",
    "SoundCodec",
    "TreeCodec",
    "UInt64Codec",
    "Utf8Codec",
    "VideoCodec",
    "WavCodec",
    "WebmCodec",
    "WebpCodec",
    "ZstdCodec",
    "codec_of",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
