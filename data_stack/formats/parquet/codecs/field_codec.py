"""Finds the codec of a field: as it is stored in a schema, given, or by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

from data_stack.codecs.codec import Codec
from data_stack.codecs.npy import NpyCodec
from data_stack.codecs.registry import codec_from_json, codec_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs.arrow_codec import ArrowCodec
from data_stack.formats.parquet.codecs.list_codec import ListCodec
from data_stack.formats.parquet.codecs.nested_codec import NestedCodec
from data_stack.formats.parquet.codecs.scalar_codec import ScalarCodec
from data_stack.formats.parquet.codecs.tensor_codec import TensorCodec
from data_stack.formats.parquet.types import FieldLike

FieldCodec: TypeAlias = ArrowCodec | Codec
"""How values of a field are stored: as Parquet's own types, or as the bytes of a codec."""

_ArrowCodecClass = TypeVar("_ArrowCodecClass", bound=type[ArrowCodec])

#: Keys of a stored field that are not arguments of its codec.
_KEYS_OF_FIELDS = ("name", "dtype", "shape", "nullable", "codec")

#: Classes of codecs by the name in stored schemas.
_arrow_codecs: dict[str, type[ArrowCodec]] = {
    ScalarCodec.kind: ScalarCodec,
    ListCodec.kind: ListCodec,
    TensorCodec.kind: TensorCodec,
    NestedCodec.kind: NestedCodec,
}


def register_arrow_codec(codec_class: _ArrowCodecClass) -> _ArrowCodecClass:
    """Register an ArrowCodec under its ``kind``, so that stored schemas find it.

    Use it as a class decorator. The class takes the values of its ``to_json``, except
    ``"codec"``, as keyword arguments.

    Raises:
        ConfigError: another class has this kind.
    """
    known = _arrow_codecs.setdefault(codec_class.kind, codec_class)
    is_same_class = (
        known.__module__ == codec_class.__module__
        and known.__qualname__ == codec_class.__qualname__
    )
    if not is_same_class:
        raise ConfigError(
            f"the codec {codec_class.kind!r} is already registered by "
            f"{known.__module__}.{known.__qualname__}"
        )
    _arrow_codecs[codec_class.kind] = codec_class  # the newer one, of a module that was reloaded
    return codec_class


def read_codec(content: Mapping[str, Any]) -> FieldCodec:
    """Make the codec of a stored field.

    Args:
        content: what :meth:`ArrowCodec.to_json` or :meth:`~data_stack.codecs.Codec.to_json`
            returned, among the other keys of a field.

    Raises:
        ConfigError: the codec is unknown.
    """
    kind = content.get("codec")
    options = {key: value for key, value in content.items() if key not in _KEYS_OF_FIELDS}
    arrow_codec = _arrow_codecs.get(kind) if isinstance(kind, str) else None
    try:
        if arrow_codec is None:
            return codec_from_json({"codec": kind, **options})
        return arrow_codec(**options)
    except (ConfigError, TypeError) as error:
        raise ConfigError(
            f"field {content.get('name')!r:.60} has the unknown codec {kind!r:.60}: {error!s:.400}"
        ) from error


def choose_codec(field: FieldLike, codec: Any) -> FieldCodec:
    """Return the codec of a field.

    Args:
        field: the field, except for its codec.
        codec: a codec, or its type such as ``"zstd(json)"``; None: the default.

    Raises:
        ConfigError: it is not a codec, or is not registered, so that readers could not find it; or
            a codec is needed.
    """
    if codec is None:
        return _default_codec(field)
    given = codec_of(codec) if isinstance(codec, str) else codec
    if isinstance(given, ArrowCodec):
        return given
    if not isinstance(given, Codec):
        raise ConfigError(
            f"the codec of field {field.name!r} must be a codec such as NdarrayCodec(), "
            f"or its type, got {codec!r:.80}"
        )
    if codec_from_json(given.to_json()) != given:
        raise ConfigError(
            f"the codec {given!r:.80} of field {field.name!r} is not registered under its name: "
            "register it"
        )
    return given


def _default_codec(field: FieldLike) -> FieldCodec:
    if field.dtype == object:
        raise ConfigError(
            f"field {field.name!r} of dtype object needs a codec, "
            "for example NestedCodec({'list': 'string'})"
        )
    if len(field.shape) > 1:
        return NpyCodec()
    if len(field.shape) == 1:
        return ListCodec()
    return ScalarCodec()
