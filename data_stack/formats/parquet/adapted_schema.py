"""Adapts a schema to how a dataset reads nulls and timestamps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs import ListCodec, ScalarCodec
from data_stack.formats.parquet.codecs.native import Nulls
from data_stack.formats.parquet.schema import Field, Schema


def adapt_schema(
    schema: Schema, with_nulls: Mapping[str, bool], nulls: Nulls, timestamp_unit: str | None
) -> Schema:
    """Adapt a schema to read nulls as other values, and timestamps in another unit.

    Args:
        schema: of the dataset.
        with_nulls: for each field whether any value may be null.
        nulls: see :class:`~data_stack.formats.parquet.ParquetDataset`; "none" for no change.
        timestamp_unit: "s", "ms", "us" or "ns"; None for no change.

    Raises:
        ConfigError: an argument is invalid.
    """
    if nulls not in ("none", "nan", "mask"):
        raise ConfigError(f"nulls must be 'none', 'nan' or 'mask', got {nulls!r:.40}")
    if timestamp_unit not in (None, "s", "ms", "us", "ns"):
        raise ConfigError(
            f"timestamp_unit must be 's', 'ms', 'us' or 'ns', got {timestamp_unit!r:.40}"
        )
    if nulls == "none" and timestamp_unit is None:
        return schema
    fields = []
    for field in schema:
        is_native = isinstance(field.codec, (ScalarCodec, ListCodec))
        if is_native and isinstance(field.dtype, np.dtype):
            field = _with_nulls_as(field, nulls, has_nulls=with_nulls[field.name])
            field = _with_timestamp_unit(field, timestamp_unit)
        fields.append(field)
    return Schema(schema.name, fields)


def _with_nulls_as(field: Field, nulls: Nulls, *, has_nulls: bool) -> Field:
    """Return a field that reads nulls as ``nulls`` says.

    Floats and times read them as NaN and NaT even where there are none. Numbers without NaN become
    floats, or are masked, only where there are nulls.
    """
    codec = field.codec
    kind = np.dtype(field.dtype).kind
    if nulls == "nan" and kind in "fmM" and isinstance(codec, (ScalarCodec, ListCodec)):
        codec_of_nan = type(codec)(codec.type, nulls="nan")
        return Field(field.name, field.dtype, field.shape, codec_of_nan, field.nullable)
    if not has_nulls or not isinstance(codec, ScalarCodec):
        return field
    if nulls == "nan" and kind in "biu":
        as_floats = ScalarCodec(nulls="nan")
        return Field(field.name, np.float64, field.shape, as_floats, field.nullable)
    if nulls == "mask" and kind in "biufmM":
        as_zero = ScalarCodec(codec.type, nulls="zero")
        return Field(field.name, field.dtype, field.shape, as_zero, field.nullable)
    return field


def _with_timestamp_unit(field: Field, unit: str | None) -> Field:
    """Return a field with another unit, if it has timestamps; a date stays one."""
    dtype = np.dtype(field.dtype)
    if unit is None or dtype.kind != "M" or dtype == np.dtype("M8[D]"):
        return field
    return Field(field.name, np.dtype(f"M8[{unit}]"), field.shape, field.codec, field.nullable)


def add_masks(schema: Schema, with_nulls: Mapping[str, bool]) -> tuple[Schema, dict[str, str]]:
    """Add a field of bools after each field that may have nulls and reads them as 0.

    Returns:
        The schema, and for each new field the field whose nulls it marks.

    Raises:
        ConfigError: there is a field of that name.
    """
    fields: list[Field] = []
    masks = {}
    for field in schema:
        fields.append(field)
        codec = field.codec
        reads_nulls_as_0 = isinstance(codec, ScalarCodec) and codec.nulls == "zero"
        if not reads_nulls_as_0 or not with_nulls[field.name]:
            continue
        mask = f"{field.name}_is_null"
        if mask in schema:
            raise ConfigError(
                f"nulls='mask' adds a column {mask!r} to {field.name!r}, "
                "but the files have a column of this name: "
                "leave one of the two out with columns=…, or pass nulls='nan'"
            )
        masks[mask] = field.name
        fields.append(Field(mask, np.bool_))
    return Schema(schema.name, fields), masks
