"""Which codec a column's type stands for."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from data_stack.dataset.definition import did_you_mean
from data_stack.exception import ConfigError
from data_stack.formats.records.codecs.codec import Codec, FunctionCodec
from data_stack.formats.records.codecs.provided import provided_codecs

__all__ = ["BUILT_IN_TYPES", "Codecs", "codec_of"]

#: Codecs of one's own by type: a Codec, a pair of functions (encode, decode), or None for bytes as they are.
Codecs: TypeAlias = Mapping[str, Codec | tuple[Callable[[Any], bytes] | None, Callable[[bytes], Any] | None] | None]

_AROUND = re.compile(r"zstd\((.*)\)", re.DOTALL)
_MAX_NESTING = 8

#: The class of each type that is built in, by module; imported when it is first asked for.
BUILT_IN_TYPES: Mapping[str, tuple[str, str]] = {
    "array": ("arrays", "ArrayCodec"),
    "bytes": ("plain", "BytesCodec"),
    "flac": ("flac", "FlacCodec"),
    "i64": ("integers", "Int64Codec"),
    "int": ("integers", "IntCodec"),
    "jpg": ("jpeg", "JpgCodec"),
    "json": ("json_text", "JsonCodec"),
    "mp4": ("video", "Mp4Codec"),
    "msgpack": ("packed", "MsgpackCodec"),
    "npy": ("npy", "NpyCodec"),
    "png": ("images", "PngCodec"),
    "tree": ("packed", "TreeCodec"),
    "u64": ("integers", "UInt64Codec"),
    "utf8": ("plain", "Utf8Codec"),
    "wav": ("wav", "WavCodec"),
    "webm": ("video", "WebmCodec"),
    "webp": ("images", "WebpCodec"),
}


def codec_of(type: str, codecs: Codecs | None = None) -> Codec:  # noqa: A002  # as Granular calls it
    """The codec of a column's type, such as ``"array"`` or ``"zstd(json)"``; a ``[]`` behind it changes nothing.

    Args:
        type: the name; ``zstd(...)`` is around any other.
        codecs: codecs of one's own by type, which go before those that are built in; those of plugins come last.

    Raises:
        ConfigError: there is no such type, or what ``codecs`` has for it is no codec.
        MissingDependencyError: it needs a package that is not installed.
    """
    return _codec_of(type.removesuffix("[]"), codecs or {}, 0)


def _codec_of(name: str, codecs: Codecs, nesting: int) -> Codec:
    if name in codecs:
        return _as_codec(name, codecs[name])
    if name in BUILT_IN_TYPES:
        module, class_name = BUILT_IN_TYPES[name]
        codec: Codec = getattr(importlib.import_module(f"{__package__}.{module}"), class_name)()
        return codec
    around = _AROUND.fullmatch(name)
    if around is not None and nesting < _MAX_NESTING:
        inner = _codec_of(around[1], codecs, nesting + 1)
        compressed: Codec = importlib.import_module(f"{__package__}.zstd").ZstdCodec(inner)
        return compressed
    provided = provided_codecs()
    if name in provided:
        return _as_codec(name, provided[name])
    known = sorted({*BUILT_IN_TYPES, *codecs, *provided})
    raise ConfigError(
        f"there is no type of column {name!r:.80}{did_you_mean(name[:80], known)}; there are: {', '.join(known)}, "
        f"and zstd(…) around each. Give codecs={{{name!r:.80}: …}} a Codec, a pair of functions (encode, decode), "
        f"or None for bytes as they are; types that plugins bring are known after `import data_stack.repository`"
    )


def _as_codec(name: str, given: Any) -> Codec:
    if isinstance(given, Codec):
        return given
    if given is None:
        return FunctionCodec()
    if isinstance(given, tuple) and len(given) == 2 and all(part is None or callable(part) for part in given):
        return FunctionCodec(*given)
    raise ConfigError(f"codecs[{name!r:.80}] is {given!r:.80}; a Codec, a pair of functions (encode, decode) or None is wanted")
