"""Codecs of fields: Parquet's own types by an ArrowCodec, or the bytes of any other codec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

from data_stack.codecs.codec import Codec, codec_from_json, codec_of
from data_stack.codecs.npy import NpyCodec as NdarrayCodec
from data_stack.codecs.npy import NpzCodec as CompressedNdarrayCodec
from data_stack.codecs.pillow_images import JpgCodec as JpegCodec
from data_stack.codecs.png import PngCodec
from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs.arrow_codec import ArrowCodec
from data_stack.formats.parquet.codecs.native import ListCodec, NestedCodec, ScalarCodec
from data_stack.formats.parquet.columns import CellError
from data_stack.formats.parquet.types import FieldLike

__all__ = [
    "ArrowCodec",
    "CellError",
    "CompressedNdarrayCodec",
    "FieldCodec",
    "JpegCodec",
    "ListCodec",
    "NdarrayCodec",
    "NestedCodec",
    "PngCodec",
    "ScalarCodec",
    "register_arrow_codec",
]

FieldCodec: TypeAlias = ArrowCodec | Codec
"""How values of a field are stored: as Parquet's own types, or as the bytes of a codec."""

_ArrowCodecClass = TypeVar("_ArrowCodecClass", bound=type[ArrowCodec])

_arrow_codecs: dict[str, type[ArrowCodec]] = {
    codec.kind: codec for codec in (ScalarCodec, ListCodec, NestedCodec)
}


def register_arrow_codec(codec_class: _ArrowCodecClass) -> _ArrowCodecClass:
    """Register an ArrowCodec under its ``kind``, so that stored schemas find it; use it as a class decorator.

    The class takes the values of its ``to_json``, except ``"codec"``, as keyword arguments.

    Raises:
        ConfigError: another class has this kind.
    """
    known = _arrow_codecs.setdefault(codec_class.kind, codec_class)
    if (known.__module__, known.__qualname__) != (codec_class.__module__, codec_class.__qualname__):
        raise ConfigError(
            f"the codec {codec_class.kind!r} is already registered by {known.__module__}.{known.__qualname__}"
        )
    _arrow_codecs[codec_class.kind] = codec_class
    return codec_class


def read_codec(content: Mapping[str, Any]) -> FieldCodec:
    """The codec that :meth:`ArrowCodec.to_json` or :meth:`~data_stack.codecs.Codec.to_json` described; other keys are ignored.

    Raises:
        ConfigError: the codec is unknown.
    """
    kind = content.get("codec")
    options = {
        key: value
        for key, value in content.items()
        if key not in ("name", "dtype", "shape", "nullable", "codec")
    }
    native = _arrow_codecs.get(kind) if isinstance(kind, str) else None
    try:
        return codec_from_json({"codec": kind, **options}) if native is None else native(**options)
    except (ConfigError, TypeError) as error:
        raise ConfigError(
            f"field {content.get('name')!r:.60} has the unknown codec {kind!r:.60}: {error!s:.400}"
        ) from error


def choose_codec(field: FieldLike, codec: Any) -> FieldCodec:
    """The codec of a field: as given, of the given type such as ``"zstd(json)"``, or the default for None.

    Raises:
        ConfigError: it is not a codec, or is not registered, so that readers could not find it; or a codec is needed.
    """
    if codec is None and field.dtype == object:
        raise ConfigError(
            f"field {field.name!r} of dtype object needs a codec, for example NestedCodec({{'list': 'string'}})"
        )
    if codec is None:
        return (
            NdarrayCodec()
            if len(field.shape) > 1
            else ListCodec()
            if field.shape
            else ScalarCodec()
        )
    found = codec_of(codec) if isinstance(codec, str) else codec
    if isinstance(found, ArrowCodec):
        return found
    if not isinstance(found, Codec):
        what = f"the codec of field {field.name!r}"
        raise ConfigError(
            f"{what} must be a codec such as NdarrayCodec(), or its type, got {codec!r:.80}"
        )
    if codec_from_json(found.to_json()) != found:
        raise ConfigError(
            f"the codec {found!r:.80} of field {field.name!r} is not registered under its name: register it"
        )
    return found
