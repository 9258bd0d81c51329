"""What the footers of a Parquet dataset tell, its schema or its manifest; the schema of columns or values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.codecs import (
    ListCodec,
    NdarrayCodec,
    NestedCodec,
    PngCodec,
    ScalarCodec,
)
from data_stack.formats.parquet.codecs.native import Nulls
from data_stack.formats.parquet.column_values import plain_value
from data_stack.formats.parquet.files import find_files, partition_names
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.int96 import schema_with_unit, stated_units
from data_stack.formats.parquet.metadata import (
    ParquetFileRecord,
    ParquetManifest,
    add_foreign_metadata,
    read_foreign_schema,
    reading_parquet,
    write_metadata,
)
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.parquet.types import (
    describe_type,
    dtype_of_arrow,
    is_list,
    name_of_arrow,
    plain_type,
)


def infer_schema(arrow_schema: pa.Schema, name: str = "parquet") -> Schema:
    """Infer a schema from Arrow types.

    Scalars have numpy's dtype; lists of scalars are arrays of one dimension, with the size of fixed-size lists; structs, maps,
    nested lists and all others have dtype object. Dictionaries, views, large types and extension types count as the values that
    they hold: an Arrow tensor is a flat list.

    Args:
        arrow_schema: of the files.
        name: name of the new schema.

    Raises:
        ConfigError: two columns have the same name, or it is no schema.
    """
    if not isinstance(arrow_schema, pa.Schema):
        raise ConfigError(
            f"not an Arrow schema: {arrow_schema!r:.80}; pyarrow.parquet.read_schema(path) reads that of a file"
        )
    return Schema(name, [_infer_field(field) for field in arrow_schema])


def _infer_field(field: pa.Field) -> Field:
    type_ = plain_type(field.type)
    if is_list(type_) and (scalar := name_of_arrow(type_.value_type)) not in (None, "void"):
        size = type_.list_size if pa.types.is_fixed_size_list(type_) else None
        return Field(
            field.name, dtype_of_arrow(type_.value_type), (size,), ListCodec(scalar), field.nullable
        )
    scalar = name_of_arrow(type_)
    if scalar in (None, "void"):
        return Field(
            field.name,
            object,
            (),
            NestedCodec(describe_type(type_)),
            field.nullable or scalar == "void",
        )
    dtype = dtype_of_arrow(type_)
    if dtype == np.dtype("datetime64[s]"):
        dtype = np.dtype("datetime64[ms]")  # Parquet stores milliseconds
    return Field(field.name, dtype, (), ScalarCodec(scalar), field.nullable)


def read_schema(footers: Footers, timestamp_unit: str | None = None) -> Schema:
    """Read the schema of a dataset: ours, or Petastorm's (by its plugin), else infer it from the columns.

    Partition columns that it lacks are added.

    Args:
        footers: of the files.
        timestamp_unit: the unit in which timestamps are wanted. It decides the unit of times of INT96, which have none: see
            :func:`_units_of_int96`.

    Raises:
        DatasetFileCorruptError: the schema is damaged, or hostile.
        ConfigError: a codec is unknown.
    """
    metadata = footers.metadata
    try:
        schema = Schema.from_metadata(metadata)
        if schema is None:
            schema = read_foreign_schema(metadata)
        if schema is None:
            with reading_parquet(
                "the schema of the columns"
            ):  # a hostile time zone raises on access
                schema = infer_schema(_schema_with_units(footers, timestamp_unit))
    except (ConfigError, DatasetFileCorruptError) as error:
        raise type(error)(f"the schema of {footers.files.folder.name}: {error}") from error
    fields = list(schema)
    for name in partition_names(footers.files.partitions):
        if name not in schema:
            texts = [values.get(name) for values in footers.files.partitions]
            is_integer = all(
                text is None or re.fullmatch(r"-?(0|[1-9]\d{0,17})", text) for text in texts
            ) and any(texts)
            fields.append(Field(name, np.int64 if is_integer else str, (), None, None in texts))
    return Schema(schema.name, fields)


def _schema_with_units(footers: Footers, timestamp_unit: str | None) -> pa.Schema:
    """The columns of the first file, in which times of INT96 have the unit in which they are read."""
    columns = footers.arrow_schema
    if not footers.files.paths:
        return columns
    facts = footers.facts(0)
    names = [name for name, leaves in facts.columns.items() if facts.is_int96[leaves].any()]
    if not names:
        return columns
    units = _units_of_int96(footers, names, timestamp_unit)
    return schema_with_unit(columns, facts.is_int96.tolist(), units)


def _units_of_int96(
    footers: Footers, names: Sequence[str], timestamp_unit: str | None
) -> dict[str, str]:
    """The unit in which to read columns of INT96, "us" or "ns", by name.

    INT96 holds nanoseconds and years far beyond those of ``datetime64[ns]``, so the unit depends on the times: the wanted one;
    else the one that the writer used (Spark: microseconds; pyarrow notes it); else nanoseconds, unless the first row group
    with rows has times that these do not hold.
    """
    if timestamp_unit is not None:
        return dict.fromkeys(names, "ns" if timestamp_unit == "ns" else "us")
    units = stated_units(footers.of(0), names)
    unknown = [name for name in names if name not in units]
    if unknown:
        units.update(dict.fromkeys(footers.names_of_far_times(0, unknown), "us"))
    return units


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
        dtype, codec = field.dtype, field.codec
        if isinstance(codec, (ScalarCodec, ListCodec)) and isinstance(dtype, np.dtype):
            has_nulls = isinstance(codec, ScalarCodec) and with_nulls[field.name]
            if nulls == "nan" and dtype.kind in "fmM":
                codec = type(codec)(codec.type, nulls="nan")
            elif nulls == "nan" and dtype.kind in "biu" and has_nulls:
                dtype, codec = np.dtype(np.float64), ScalarCodec(nulls="nan")
            elif nulls == "mask" and dtype.kind in "biufmM" and has_nulls:
                codec = ScalarCodec(codec.type, nulls="zero")
            if timestamp_unit is not None and dtype.kind == "M" and dtype != np.dtype("M8[D]"):
                dtype = np.dtype(f"M8[{timestamp_unit}]")
        fields.append(Field(field.name, dtype, field.shape, codec, field.nullable))
    return Schema(schema.name, fields)


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
        if (
            isinstance(field.codec, ScalarCodec)
            and field.codec.nulls == "zero"
            and with_nulls[field.name]
        ):
            mask = f"{field.name}_is_null"
            if mask in schema:
                raise ConfigError(
                    f"nulls='mask' adds a column {mask!r} to {field.name!r}, but the files have a column of this name: "
                    f"leave one of the two out with columns=…, or pass nulls='nan'"
                )
            masks[mask] = field.name
            fields.append(Field(mask, np.bool_))
    return Schema(schema.name, fields), masks


def generate_metadata(
    source: Any, *, prefix: str = "", schema: Schema | None = None, petastorm: bool = False
) -> ParquetManifest:
    """Write the manifest of a dataset from the footers of its files; no row is read.

    Use it for datasets that other tools wrote, appended to, or removed files from. It updates Petastorm's ``_common_metadata``.

    Args:
        source: a folder, a storage connector or the URL of one.
        prefix: folder below it.
        schema: of the rows, partition columns included; None for the stored schema (ours, or Petastorm's), else an inferred one.
        petastorm: write the ``_common_metadata`` that Petastorm needs, too.

    Returns:
        The manifest.

    Raises:
        ResourceNotFoundError: ``source`` has no Parquet files.
        ConfigError: files do not fit the schema; or Petastorm does not know a field.
        DatasetFileCorruptError: a file is damaged, or its writer has not finished.
        StorageError: it cannot be read or written.
    """
    files = find_files(source, prefix)
    if files.given:
        raise ConfigError("metadata belong to a whole dataset: pass its folder, not a file")
    files.account.warn()
    footers = Footers(files, verified=False)
    found = read_schema(footers) if schema is None else schema
    RowGroups(
        footers, found
    )  # raises where a file lacks a field, or a folder's name is not a value
    records = tuple(
        ParquetFileRecord.of(
            path, footers.size(number), footers.facts(number), footers.digest(number)
        )
        for number, path in enumerate(files.paths)
    )
    metadata = add_foreign_metadata(
        {**footers.metadata, **found.metadata()}, found, records, always=petastorm
    )
    try:
        before = footers.manifest
    except DatasetFileCorruptError:  # damaged, or of an earlier version: it is replaced here
        before = None
    manifest = ParquetManifest(
        found,
        records,
        tuple(partition_names(files.partitions)),
        0 if before is None else before.n_parts,
    )
    write_metadata(
        files.folder, footers.arrow_schema.with_metadata(metadata), files.paths, manifest
    )
    return manifest


# ---------------------------------------------------------------------- from values, for a writer

_ADVICE: Final = 'pass schema=Schema("…", [Field(…), …])'
_IMAGE_SHAPES: Final = {"L": (None, None), "RGB": (None, None, 3), "RGBA": (None, None, 4)}


def schema_of_columns(name: str, columns: Mapping[str, Any]) -> Schema:
    """Infer a field for each column. All fields are nullable.

    Args:
        name: name of the schema.
        columns: arrays of shape ``(n, ...)``, which fix the shape of values, or lists of values; arrays in a list may differ in
            size, but not in their number of dimensions.

    Raises:
        ConfigError: the type of a field cannot be inferred, or cannot be stored.
    """
    if not columns:
        raise ConfigError(f"cannot infer a schema without fields: {_ADVICE}")
    return Schema(name, [_field(field, values) for field, values in columns.items()])


def _has_no_type(values: Iterable[Any]) -> bool:
    """Whether all values are None or empty lists."""
    return all(
        value is None or (isinstance(value, (list, tuple)) and _has_no_type(value))
        for value in values
    )


def _field(name: str, values: Any) -> Field:
    if isinstance(values, np.ndarray) and values.dtype != object:
        return _field_of_dtype(name, values.dtype, values.shape[1:])
    value = next((value for value in values if not _has_no_type([value])), None)
    if value is None:
        raise ConfigError(
            f"cannot infer the type of field {name!r}: its first values are null or empty; {_ADVICE}"
        )
    mode = getattr(value, "mode", None)
    if isinstance(mode, str) and hasattr(value, "__array_interface__"):  # an image of Pillow
        if mode not in _IMAGE_SHAPES:
            raise ConfigError(
                f"field {name!r} has an image of mode {mode!r:.20}: convert it to L, RGB or RGBA, or {_ADVICE}"
            )
        return Field(name, "uint8", _IMAGE_SHAPES[mode], PngCodec(), nullable=True)
    value = plain_value(value)
    if isinstance(value, Decimal):
        return Field(name, Decimal, nullable=True)
    if isinstance(value, (np.ndarray, np.generic)):
        return _field_of_dtype(name, value.dtype, (None,) * value.ndim)
    if hasattr(value, "dtype"):  # a tensor of bfloat16, say, or a sparse one
        raise ConfigError(
            f"field {name!r} has a {type(value).__name__} of dtype {value.dtype}: convert it to a numpy array"
        )
    try:
        type_ = pa.infer_type([plain_value(each) for each in values])
        if type_ == pa.int64() and any(
            isinstance(each, int) and each >= 1 << 63 for each in values
        ):
            type_ = pa.uint64()
        (field,) = infer_schema(pa.schema([pa.field(name, type_)]))
    except (pa.ArrowException, ConfigError, TypeError, ValueError) as error:
        raise ConfigError(
            f"cannot infer the type of field {name!r}: {error!s:.200}; {_ADVICE}"
        ) from error
    return field


def _field_of_dtype(name: str, dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> Field:
    if dtype.kind in "mM" and np.datetime_data(dtype)[0] == "generic":
        raise ConfigError(
            f"field {name!r} has times without a unit, of dtype {dtype}: convert them with astype()"
        )
    try:
        return Field(name, dtype, shape, nullable=True)
    except ConfigError as error:
        try:  # Parquet has no complex numbers, for instance
            return Field(name, dtype, shape, NdarrayCodec(), nullable=True)
        except ConfigError:
            raise ConfigError(f"field {name!r} cannot be stored: {error}; {_ADVICE}") from error
