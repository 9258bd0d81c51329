"""Chooses the encoders of columns by their features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from data_stack.dataset.encoders import Encoder
from data_stack.dataset.iterator import access_to
from data_stack.exception import CatalogueSchemaError, ConfigError
from data_stack_huggingface.cast_encoder import CastEncoder, check_cast
from data_stack_huggingface.hub_encoder import HubEncoder

if TYPE_CHECKING:
    import pyarrow as pa

    from data_stack.formats.parquet import Field, ParquetDataset

#: Names of dtypes of numbers.
_NUMBER_DTYPES = frozenset(
    (
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    )
)


def encoders_of(
    rows: ParquetDataset, features: Mapping[str, Any], place: str, image_mode: str | None = None
) -> dict[int | str, Encoder]:
    """Return encoders for the columns whose values differ from Parquet's.

    Args:
        rows: rows of the files.
        features: features by column; may be empty.
        place: name of the files for errors.
        image_mode: mode of Pillow to convert images to; None: that of their feature, or no
            conversion.

    Raises:
        CatalogueSchemaError: the columns of a file differ from the features, or from those of the
            first file.
    """
    expected_columns = features or rows.schema.fields
    differing_columns = rows.all_columns ^ expected_columns.keys()
    if differing_columns:
        raise _make_schema_error(place, ", ".join(differing_columns))

    declared_columns = access_to(rows).declare_columns() or {}
    encoders: dict[int | str, Encoder] = {}
    for name, feature in features.items():
        # A column that declares nothing may have nulls.
        is_nullable = name not in declared_columns or declared_columns[name].is_nullable
        try:
            encoder = _encoder_of(rows.schema[name], feature, image_mode, is_nullable)
        except ConfigError as error:
            raise _make_schema_error(place, f"{name}: {error}") from error
        if encoder is not None:
            encoders[name] = encoder
    return encoders


def _make_schema_error(place: str, differences: str) -> CatalogueSchemaError:
    """Return the error for files whose columns differ from the features of the dataset."""
    return CatalogueSchemaError(
        f"{place} has columns that differ from its features ({differences}): report it to its owner"
    )


def _encoder_of(
    field: Field, feature: Mapping[str, Any], image_mode: str | None, is_nullable: bool
) -> Encoder | None:
    """Return the encoder of a column; None if its values need none.

    Raises:
        ConfigError: the type of the column differs from the feature.
    """
    stored_type = field.arrow_type()
    kind = str(feature.get("_type"))
    if kind == "Image":
        _check_image_type(stored_type)
        return HubEncoder(mode=image_mode or feature.get("mode"))
    if kind == "ClassLabel":
        return _encoder_of_labels(field, stored_type, feature, is_nullable)
    if kind.startswith("Array"):  # Array2D to Array5D
        shape = feature.get("shape")
        if isinstance(shape, list) and None not in shape:  # a size may be open
            return HubEncoder(dtype=feature.get("dtype"), shape=shape)
    return _encoder_of_values(field, stored_type, _dtype_of(feature), feature, is_nullable)


def _check_image_type(stored_type: pa.DataType) -> None:
    """Check that a column may hold files of images.

    Raises:
        ConfigError: its type is neither bytes nor a struct of bytes and path.
    """
    import pyarrow as pa

    is_struct = pa.types.is_struct(stored_type) and stored_type.get_field_index("bytes") >= 0
    is_bytes = pa.types.is_binary(stored_type) or pa.types.is_large_binary(stored_type)
    if not is_struct and not is_bytes:
        raise ConfigError(f"Image is stored as {stored_type!s:.60}")


def _encoder_of_labels(
    field: Field, stored_type: pa.DataType, feature: Mapping[str, Any], is_nullable: bool
) -> Encoder | None:
    """Return the encoder of a column of classes, which are stored by name or by number.

    Raises:
        ConfigError: the column holds neither.
    """
    import pyarrow as pa

    is_text = pa.types.is_string(stored_type) or pa.types.is_large_string(stored_type)
    if is_text and feature.get("names"):
        return HubEncoder(names=feature["names"])
    if not pa.types.is_integer(stored_type):
        raise ConfigError(f"ClassLabel is stored as {stored_type!s:.60}")
    return _encoder_of_values(field, stored_type, "int64", feature, is_nullable)


def _encoder_of_values(
    field: Field,
    stored_type: pa.DataType,
    dtype: str | None,
    feature: Mapping[str, Any],
    is_nullable: bool,
) -> Encoder | None:
    """Return the encoder of plain values; None if they have the declared type.

    Args:
        field: the column.
        stored_type: its type in the files.
        dtype: the declared dtype of its numbers; None if they are no plain values.
        feature: the feature of the column.
        is_nullable: whether the column may have nulls.

    Raises:
        ConfigError: Arrow does not cast the stored type to the declared one.
    """
    has_numbers = isinstance(field.dtype, np.dtype) and field.dtype.kind in "iuf"
    if dtype in _NUMBER_DTYPES and has_numbers:
        if field.dtype == dtype:
            return None
        return HubEncoder(dtype=dtype)
    return _cast_encoder_of(stored_type, feature, is_nullable)


def _dtype_of(feature: Mapping[str, Any]) -> str | None:
    """Return the dtype of a value, or of the values of a list; None for other features."""
    from data_stack.formats.arrow_ipc.feature_types import LIST_KINDS

    value_feature: Any = feature
    if feature.get("_type") in LIST_KINDS:
        value_feature = feature.get("feature")
    if not isinstance(value_feature, Mapping) or value_feature.get("_type") != "Value":
        return None
    return str(value_feature.get("dtype"))


def _cast_encoder_of(
    stored_type: pa.DataType, feature: Mapping[str, Any], is_nullable: bool
) -> CastEncoder | None:
    """Return an encoder that casts.

    Returns:
        The encoder; None if the values have the declared type, or are no plain ones.

    Raises:
        ConfigError: Arrow does not cast the stored type to the declared one.
    """
    from data_stack.formats.arrow_ipc.feature_types import arrow_type_of
    from data_stack.formats.parquet.types import describe_type

    stored_description = describe_type(stored_type)
    declared_type = arrow_type_of(feature)
    if declared_type is None or describe_type(declared_type) == stored_description:
        return None
    check_cast(stored_type, declared_type)
    return CastEncoder(stored_description, feature, is_nullable)
