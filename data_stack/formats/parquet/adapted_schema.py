"""Adapts a schema to the arguments ``nulls=`` and ``timestamp_unit=`` of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs import ListCodec, ScalarCodec, TensorCodec
from data_stack.formats.parquet.codecs.native import Nulls
from data_stack.formats.parquet.schema import Field, Schema

#: The codecs of scalars, and of lists and tensors of scalars, in Parquet's own types.
_NATIVE_CODECS: Final = (ScalarCodec, ListCodec, TensorCodec)

# Kinds of dtypes, as in ``np.dtype.kind``.
#: Floats, durations and times: they have NaN or NaT.
_KINDS_WITH_NAN: Final = "fmM"
#: Bools and integers: they have no NaN.
_KINDS_WITHOUT_NAN: Final = "biu"


def adapt_schema(
    schema: Schema, may_have_nulls: Mapping[str, bool], nulls: Nulls, timestamp_unit: str | None
) -> Schema:
    """Return a schema that reads nulls as other values, and timestamps in another unit.

    Only scalars, and lists and tensors of scalars, that Parquet stores in its own types are
    adapted. Other fields are unchanged.

    Args:
        schema: the schema of the dataset.
        may_have_nulls: for the name of each field, whether any value may be null.
        nulls: "none" reads nulls as None; "nan" as NaN or NaT; "mask" as 0, and
            :func:`add_masks` adds the fields that say which values were null.
        timestamp_unit: "s", "ms", "us" or "ns"; None keeps the unit of each field.

    Returns:
        The adapted schema; ``schema`` itself if nothing is to adapt.

    Raises:
        ConfigError: ``nulls`` or ``timestamp_unit`` is invalid.
    """
    if not _is_one_of(("none", "nan", "mask"), nulls):
        raise ConfigError(f"nulls must be 'none', 'nan' or 'mask', got {nulls!r:.40}")
    if timestamp_unit is not None and not _is_one_of(("s", "ms", "us", "ns"), timestamp_unit):
        raise ConfigError(
            f"timestamp_unit must be 's', 'ms', 'us' or 'ns', got {timestamp_unit!r:.40}"
        )
    if nulls == "none" and timestamp_unit is None:
        return schema

    fields = []
    for field in schema:
        is_native = isinstance(field.codec, _NATIVE_CODECS)
        # Decimals are native, too, but their dtype is no dtype of numpy.
        if is_native and isinstance(field.dtype, np.dtype):
            adapted = _with_nulls_as(field, nulls, has_nulls=may_have_nulls[field.name])
            adapted = _with_timestamp_unit(adapted, timestamp_unit)
            fields.append(adapted)
        else:
            fields.append(field)
    return Schema(schema.name, fields)


def _is_one_of(texts: tuple[str, ...], value: object) -> bool:
    """Return whether an argument of the user is one of some texts.

    ``value in texts`` alone would raise for an array, which compares each of its elements.
    """
    return isinstance(value, str) and value in texts


def _with_nulls_as(field: Field, nulls: Nulls, *, has_nulls: bool) -> Field:
    """Return a field that reads nulls as ``nulls`` says.

    Floats and times are read in the same way whether they have nulls or not, as their dtype is the
    same. Bools and integers become floats, and fields are masked, only where there are nulls.

    Nulls within lists or tensors of bools or integers, and with "mask" those within any of these,
    remain None.
    """
    codec = field.codec
    kind = np.dtype(field.dtype).kind
    if nulls == "nan" and kind in _KINDS_WITH_NAN and isinstance(codec, _NATIVE_CODECS):
        nan_codec = codec.with_nulls("nan")
        return Field(field.name, field.dtype, field.shape, nan_codec, field.nullable)

    if not has_nulls or not isinstance(codec, ScalarCodec):
        return field
    if nulls == "nan" and kind in _KINDS_WITHOUT_NAN:
        # The codec has the type of the new dtype, float64, not that of the stored integers.
        float_codec = ScalarCodec(nulls="nan")
        return Field(field.name, np.float64, field.shape, float_codec, field.nullable)
    if nulls == "mask" and kind in _KINDS_WITH_NAN + _KINDS_WITHOUT_NAN:
        zero_codec = ScalarCodec(codec.type, nulls="zero")
        return Field(field.name, field.dtype, field.shape, zero_codec, field.nullable)
    return field


def _with_timestamp_unit(field: Field, unit: str | None) -> Field:
    """Return a field whose timestamps have another unit.

    Dates, which are ``datetime64[D]``, and fields of other dtypes are unchanged.
    """
    dtype = np.dtype(field.dtype)
    if unit is None or dtype.kind != "M" or dtype == np.dtype("M8[D]"):
        return field
    return Field(field.name, np.dtype(f"M8[{unit}]"), field.shape, field.codec, field.nullable)


def add_masks(schema: Schema, may_have_nulls: Mapping[str, bool]) -> tuple[Schema, dict[str, str]]:
    """Add a mask after each field whose nulls are read as 0.

    The mask of a field ``x`` is a field ``x_is_null`` of bools, shape ``()``: true where the value
    of ``x`` is null.

    Args:
        schema: a schema that :func:`adapt_schema` returned, or some of its fields.
        may_have_nulls: for the name of each field, whether any value may be null.

    Returns:
        The schema with the masks, and the name of the masked field by the name of each mask.

    Raises:
        ConfigError: the schema already has a field of that name.
    """
    fields: list[Field] = []
    field_of_mask = {}
    for field in schema:
        fields.append(field)
        codec = field.codec
        reads_nulls_as_0 = isinstance(codec, ScalarCodec) and codec.nulls == "zero"
        if not reads_nulls_as_0 or not may_have_nulls[field.name]:
            continue
        mask_name = f"{field.name}_is_null"
        if mask_name in schema:
            raise ConfigError(
                f"nulls='mask' adds a column {mask_name!r} to {field.name!r}, "
                "but the files have a column of this name: "
                "leave one of the two out with columns=…, or pass nulls='nan'"
            )
        field_of_mask[mask_name] = field.name
        fields.append(Field(mask_name, np.bool_))
    return Schema(schema.name, fields), field_of_mask
