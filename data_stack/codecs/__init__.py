"""What turns values into bytes and back: records, cells of Parquet, files of WebDataset and of images are all such bytes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_stack.codecs.arrays import ArrayCodec
    from data_stack.codecs.codec import Codec, Column, FixedLayout, FunctionCodec
    from data_stack.codecs.flac import FlacCodec
    from data_stack.codecs.images import ImageCodec
    from data_stack.codecs.integers import Int64Codec, IntCodec, UInt64Codec
    from data_stack.codecs.jpeg import JpgCodec
    from data_stack.codecs.json_text import JsonCodec
    from data_stack.codecs.npy import NpyCodec
    from data_stack.codecs.npz import NpzCodec
    from data_stack.codecs.packed import MsgpackCodec, TreeCodec
    from data_stack.codecs.plain import BytesCodec, Utf8Codec
    from data_stack.codecs.png import PngCodec
    from data_stack.codecs.python_values import PythonCodec
    from data_stack.codecs.registry import Codecs, codec_from_json, codec_of, register_codec, registered_types
    from data_stack.codecs.sound import SoundCodec
    from data_stack.codecs.video import Mp4Codec, VideoCodec, WebmCodec
    from data_stack.codecs.wav import WavCodec
    from data_stack.codecs.webp import WebpCodec
    from data_stack.codecs.zstd import ZstdCodec

_MODULES = {
    "ArrayCodec": "arrays",
    "BytesCodec": "plain",
    "Codec": "codec",
    "Codecs": "registry",
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
    "NpzCodec": "npz",
    "PngCodec": "png",
    "PythonCodec": "python_values",
    "SoundCodec": "sound",
    "TreeCodec": "packed",
    "UInt64Codec": "integers",
    "Utf8Codec": "plain",
    "VideoCodec": "video",
    "WavCodec": "wav",
    "WebmCodec": "video",
    "WebpCodec": "webp",
    "ZstdCodec": "zstd",
    "codec_from_json": "registry",
    "codec_of": "registry",
    "register_codec": "registry",
    "registered_types": "registry",
}

__all__ = [
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
    "NpzCodec",
    "PngCodec",
    "PythonCodec",
    "SoundCodec",
    "TreeCodec",
    "UInt64Codec",
    "Utf8Codec",
    "VideoCodec",
    "WavCodec",
    "WebmCodec",
    "WebpCodec",
    "ZstdCodec",
    "codec_from_json",
    "codec_of",
    "register_codec",
    "registered_types",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
