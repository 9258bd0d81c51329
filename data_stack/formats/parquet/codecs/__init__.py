"""How values of fields become cells of Parquet columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs.arrays import CompressedNdarrayCodec, NdarrayCodec
from data_stack.formats.parquet.codecs.cell_codec import CellCodec, CellValueError
from data_stack.formats.parquet.codecs.images import JpegCodec, PngCodec
from data_stack.formats.parquet.codecs.native import ListCodec, NestedCodec, ScalarCodec, TensorCodec
from data_stack.formats.parquet.codecs.records import RecordCodec

if TYPE_CHECKING:
    from data_stack.formats.parquet.schema import Field

__all__ = [
    "CellCodec",
    "CellValueError",
    "CompressedNdarrayCodec",
    "JpegCodec",
    "ListCodec",
    "NdarrayCodec",
    "NestedCodec",
    "PngCodec",
    "RecordCodec",
    "ScalarCodec",
    "TensorCodec",
    "codec_from_json",
    "default_codec",
]

_CODECS: dict[str, type[CellCodec]] = {
    codec.kind: codec
    for codec in (
        ScalarCodec,
        ListCodec,
        NestedCodec,
        TensorCodec,
        NdarrayCodec,
        CompressedNdarrayCodec,
        PngCodec,
        JpegCodec,
        RecordCodec,
    )
}


def codec_from_json(content: Mapping[str, Any]) -> CellCodec:
    """The codec that :meth:`CellCodec.to_json` described; other keys are left alone.

    Raises:
        ConfigError: there is no such codec.
    """
    kind = content.get("codec")
    codec = _CODECS.get(kind) if isinstance(kind, str) else None
    if codec is None:
        raise ConfigError(
            f"field {content.get('name')!r:.60} has the codec {kind!r:.60}, which this data_stack does not know; "
            f"it knows: {', '.join(_CODECS)}"
        )
    options = {key: value for key, value in content.items() if key not in ("name", "dtype", "shape", "nullable", "codec")}
    try:
        return codec(**options)
    except TypeError as error:
        raise ConfigError(f"field {content.get('name')!r:.60}: the codec {kind} has no such options: {options!r:.80}") from error


def default_codec(field: Field) -> CellCodec:
    """How values of a field are stored if nobody says otherwise."""
    if field.dtype == object:
        raise ConfigError(
            f"field {field.name!r} of dtype object needs a codec, for example NestedCodec({{'struct': {{'name': 'string'}}}})"
        )
    if not field.shape:
        return ScalarCodec()
    return ListCodec() if len(field.shape) == 1 else NdarrayCodec()
