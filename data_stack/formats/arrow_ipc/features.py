"""Reads what Hugging Face's ``datasets`` says of columns, the *features*.

A feature is a dict such as ``{"_type": "ClassLabel", "names": ["cat", "dog"]}``. The features of an
Arrow file are in the metadata of its schema; those of a folder of ``save_to_disk`` are in its
``dataset_info.json``, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.arrow_ipc.cell_readers import CellReader, ImageCellReader, PlainCellReader
from data_stack.formats.arrow_ipc.feature_types import storage_type_of
from data_stack.formats.class_name_metadata import FEATURES_KEY
from data_stack.formats.parquet.types import describe_type
from data_stack.util.untrusted_text import parse_json

#: The most numbers that an array may have.
_MAX_NUMBERS_OF_ARRAY: Final = 1 << 40


@dataclass(frozen=True)
class StoredFeature:
    """A feature of a column, as ``kind`` of its :class:`~data_stack.formats.arrow_tables.Origin`.

    Attributes:
        description: the feature as plain data.
    """

    description: Any


def features_of_schema(schema: pa.Schema) -> dict[str, Any]:
    """Return the features in the metadata of a schema, by column; empty without such.

    Tools that are not ``datasets`` keep the metadata when they change a column. So a feature whose
    type is not that of its column is left out, as ``datasets`` does.

    Raises:
        ConfigError: a feature of a column is unknown.
        DatasetFileCorruptError: the metadata are damaged.
    """
    metadata = schema.metadata or {}
    if FEATURES_KEY not in metadata:
        return {}
    try:
        info = parse_json(metadata[FEATURES_KEY])["info"]
        features = dict(info.get("features") or {})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetFileCorruptError(
            f"the metadata of Hugging Face in its schema are damaged: {error!s:.200}"
        ) from error
    kept_features = {}
    for field in schema:
        if field.name in features and _is_stored_as(field, features[field.name]):
            kept_features[field.name] = features[field.name]
    return kept_features


def check_features(features: Mapping[str, Any], schema: pa.Schema, place: str) -> None:
    """Check that features are those of the columns, as ``datasets`` does.

    Args:
        features: a feature for each column.
        schema: the columns.
        place: where the features are from, for messages.

    Raises:
        ConfigError: a feature is unknown.
        DatasetFileCorruptError: columns have no feature, or a feature no column, or another type.
    """
    differing = features.keys() ^ set(schema.names)
    if differing:
        names = ", ".join(sorted(map(str, differing)))
        raise DatasetFileCorruptError(
            f"{place} describes other columns than the Arrow files have: {names:.300}"
        )
    for field in schema:
        if not _is_stored_as(field, features[field.name]):
            raise DatasetFileCorruptError(
                f"{place} says that column {field.name!r} is {features[field.name]!s:.120}, "
                f"but the Arrow files have the type {field.type!s:.80}"
            )


def _is_stored_as(field: pa.Field, feature: Any) -> bool:
    """Return whether the type of a column is the one of its feature.

    Raises:
        ConfigError: the feature is unknown.
    """
    try:
        expected_type = storage_type_of(feature)
    except ConfigError as error:
        raise ConfigError(
            f"column {field.name!r} is of a feature of Hugging Face that cannot be read: {error}; "
            "leave it out of columns=…"
        ) from error
    try:
        return bool(describe_type(field.type) == describe_type(expected_type))
    except ConfigError:  # Arrow's types without a name: they have no values here
        return bool(field.type == expected_type)


# ---------------------------------------------------------------------- values


def reader_of_feature(
    field: pa.Field, feature: Any, *, has_nulls: bool, image_mode: str | None
) -> CellReader:
    """Return a reader of a column with a feature.

    Args:
        field: the column.
        feature: its feature.
        has_nulls: whether a value is null.
        image_mode: the mode of Pillow to convert images to; None for that of the feature.

    Raises:
        ConfigError: the type of the column is unsupported.
    """
    kind = StoredFeature(feature)
    if kind_of(feature) == "Image":
        return ImageCellReader(
            field.name,
            has_nulls=has_nulls,
            mode=image_mode or feature.get("mode"),
            kind=kind,
            is_mode_of_feature=image_mode in (None, feature.get("mode")),
        )
    return PlainCellReader(field, has_nulls=has_nulls, shape=_shape_of(feature), kind=kind)


def kind_of(feature: Any) -> str | None:
    """Return the name of the class of a feature; None for a dict or list of features."""
    if not isinstance(feature, Mapping):
        return None
    kind = feature.get("_type")
    return kind if isinstance(kind, str) else None


def _shape_of(feature: Any) -> tuple[int, ...]:
    """Return the shape of arrays; ``()`` for other features, and if a size differs.

    Raises:
        DatasetFileCorruptError: a size is negative, or there are more numbers than fit into memory.
    """
    if not (kind_of(feature) or "").startswith("Array"):
        return ()
    shape = feature.get("shape")
    are_sizes = isinstance(shape, list) and all(type(size) is int for size in shape)
    if not are_sizes:
        return ()
    if min(shape, default=0) < 0 or math.prod(shape) > _MAX_NUMBERS_OF_ARRAY:
        raise DatasetFileCorruptError(f"a feature states arrays of the shape {shape!s:.100}")
    return tuple(shape)


# ---------------------------------------------------------------------- roles


def target_of(features: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the column of the target, the only ``ClassLabel``; None if there are more or none."""
    return _only([name for name in names if kind_of(features.get(name)) == "ClassLabel"])


def sample_of(features: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the column of the sample, the only ``Image``; None if there are more or none."""
    return _only([name for name in names if kind_of(features.get(name)) == "Image"])


def _only(names: Sequence[str]) -> str | None:
    return names[0] if len(names) == 1 else None
