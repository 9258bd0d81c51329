"""Petastorm's schemas, which its programs declare; only the import changes."""

from __future__ import annotations

import re
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet.types import (
    arrow_for_spark,
    arrow_type_of_dtype,
    dtype_of_arrow,
    is_list,
    name_of_arrow,
)
from data_stack.values.named_rows import row_type
from data_stack_petastorm.codecs import ScalarCodec, as_column_codec
from data_stack_petastorm.column_codec import UnischemaField

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

__all__ = [
    "Unischema",
    "UnischemaField",
    "default_spark_type",
    "dict_to_spark_row",
    "insert_explicit_nulls",
    "match_unischema_fields",
]


class Unischema:
    """The fields of a dataset, in their order; each is an attribute.

    ::

        Frames = Unischema("Frames", [
            UnischemaField("id", np.int64, (), ScalarCodec(LongType()), False),
            UnischemaField("image", np.uint8, (32, 16, 3), CompressedImageCodec("png"), False),
        ])
        make_reader(url, schema_fields=[Frames.id])

    Warns:
        UserWarning: a field has the name of a method, so that it is only available as ``schema.fields[name]``.
    """

    def __init__(self, name: str, fields: Iterable[UnischemaField]) -> None:
        self._name = name
        self._fields = OrderedDict((field.name, field) for field in fields)
        for field_name in self._fields:
            if hasattr(type(self), field_name):
                warnings.warn(
                    f"Can not create dynamic property {field_name}: Unischema has one of this name; use fields[{field_name!r}]",
                    stacklevel=2,
                )

    def __getattr__(self, name: str) -> UnischemaField:
        # an object has no fields yet while it is unpickled
        fields = self.__dict__.get("_fields", {})
        if name not in fields:
            raise AttributeError(f"{type(self).__name__} has no attribute and no field {name!r}")
        found: UnischemaField = fields[name]
        return found

    @property
    def fields(self) -> OrderedDict[str, UnischemaField]:
        """The fields by name."""
        return self._fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unischema) and (self._name, self._fields) == (
            other._name,
            other._fields,
        )

    def __hash__(self) -> int:
        return hash((self._name, tuple(self._fields)))

    def __str__(self) -> str:
        lines = "".join(
            f"  UnischemaField({field.name!r}, {getattr(field.numpy_dtype, '__name__', field.numpy_dtype)}, {field.shape}, "
            f"{field.codec}, {field.nullable}),\n"
            for field in self._fields.values()
        )
        return f"{type(self).__name__}({self._name}, [\n{lines}])"

    __repr__ = __str__

    def create_schema_view(self, fields: Iterable[str | UnischemaField]) -> Unischema:
        """Return the schema ``<name>_view`` of some fields.

        Args:
            fields: fields of this schema, and regular expressions of whole names. An expression may match nothing.

        Raises:
            ConfigError: an element has another type, or this schema lacks the field.
        """
        fields = list(fields)
        patterns = [each for each in fields if isinstance(each, str)]
        exact = [each for each in fields if isinstance(each, tuple)]
        if len(patterns) + len(exact) != len(fields):
            raise ConfigError(
                f"fields must be either a string (a regular expression) or a UnischemaField, got {fields!r:.200}"
            )
        names = [each[0] for each in exact]
        unknown = [name for name in names if name not in self._fields]
        if unknown:
            raise ConfigError(
                f"field {unknown[0]!r} does not belong to the schema {self._name}: {', '.join(self._fields)}"
            )
        names += [field.name for field in match_unischema_fields(self, patterns)]
        return Unischema(
            f"{self._name}_view", [self._fields[name] for name in dict.fromkeys(names)]
        )

    def make_namedtuple(self, **values: Any) -> Any:
        """Return a row as a named tuple ``<name>_view``; schemas of the same name and fields share its class."""
        return self._row_type(**values)

    def make_namedtuple_tf(self, *values: Any, **named: Any) -> Any:
        """Return a row of tensors as a named tuple, by position or by name."""
        return self._row_type(*values, **named)

    def _get_namedtuple(self) -> Any:
        """Return the class of :meth:`make_namedtuple`; programs of Petastorm use this name."""
        return self._row_type

    @property
    def _row_type(self) -> Any:
        return row_type(f"{self._name}_view", tuple(self._fields))

    def as_spark_schema(self) -> StructType:
        """Return the Spark schema of the encoded cells; requires pyspark.

        Raises:
            ConfigError: a field without a codec has a shape, or a type that Spark lacks.
        """
        from pyspark.sql.types import StructField, StructType

        return StructType(
            [
                StructField(each.name, _spark_type(each), bool(each.nullable))
                for each in self._fields.values()
            ]
        )

    @classmethod
    def from_arrow_schema(
        cls, parquet_dataset: Any, omit_unsupported_fields: bool = True
    ) -> Unischema:
        """Return the schema of a Parquet dataset without codecs.

        Args:
            parquet_dataset: a :class:`pyarrow.Schema`, or an object with one as ``schema``, such as
                ``pyarrow.parquet.ParquetDataset``; columns of partitions included.
            omit_unsupported_fields: whether to omit structs, maps, nested lists and other types that NumPy lacks, with a warning.

        Raises:
            ConfigError: a column has such a type, and ``omit_unsupported_fields`` is False.
        """
        schema = (
            parquet_dataset
            if isinstance(parquet_dataset, pa.Schema)
            else getattr(parquet_dataset, "schema", None)
        )
        if not isinstance(schema, pa.Schema):  # ParquetDataset of old versions of pyarrow
            schema = parquet_dataset.pieces[0].get_metadata().schema.to_arrow_schema()
        fields = []
        for column in schema:
            dtype: Any = dtype_of_arrow(
                column.type.value_type if is_list(column.type) else column.type
            )
            if dtype is Decimal or not dtype.hasobject:
                shape = (None,) if is_list(column.type) else ()
                fields.append(
                    UnischemaField(
                        column.name, getattr(dtype, "type", dtype), shape, None, column.nullable
                    )
                )
            elif omit_unsupported_fields:
                warnings.warn(
                    f"Column {column.name!r} has the unsupported type {column.type} and is omitted",
                    stacklevel=2,
                )
            else:
                raise ConfigError(
                    f"Cannot auto-create unischema due to unsupported column type {column.type} of column {column.name!r}"
                )
        return cls("inferred_schema", fields)


def match_unischema_fields(schema: Unischema, field_regex: Sequence[str]) -> list[UnischemaField]:
    """Return the fields whose whole names match a regular expression, in the order of the schema.

    Warns:
        UserWarning: Petastorm before 0.7 matched more fields, because an expression only had to match the beginning.
    """
    names = [
        name
        for name in schema.fields
        if any(re.fullmatch(pattern, name) for pattern in field_regex)
    ]
    before = [
        name for name in schema.fields if any(re.match(pattern, name) for pattern in field_regex)
    ]
    if names != before:
        warnings.warn(
            "schema_fields behavior has changed: a regular expression must match the entire field name. This affects "
            f"{', '.join(sorted(set(before) - set(names)))}",
            stacklevel=2,
        )
    return [schema.fields[name] for name in names]


def insert_explicit_nulls(unischema: Unischema, row_dict: dict[str, Any]) -> None:
    """Set missing nullable fields of a row to None, in place.

    Raises:
        ConfigError: the row lacks a field that is not nullable.
    """
    for name, field in unischema.fields.items():
        if name not in row_dict:
            if not field.nullable:
                raise ConfigError(f"Field {name!r} is not found in the row, but is not nullable")
            row_dict[name] = None


def dict_to_spark_row(unischema: Unischema, row_dict: dict[str, Any]) -> Row:
    """Return a row for Spark: values are encoded by their codecs, fields in the order of the schema.

    Args:
        unischema: schema of the row.
        row_dict: a value for each field; nullable ones may be missing.

    Raises:
        ConfigError: a field is missing or unknown, or None but not nullable.
        TypeError, ValueError: a value does not fit its field.
    """
    from pyspark.sql import Row

    row = dict(row_dict)
    insert_explicit_nulls(unischema, row)
    if unknown := sorted(set(row) - set(unischema.fields)):
        raise ConfigError(
            f"Dictionary fields do not match schema fields: {unknown[0]!r} is not one of {', '.join(unischema.fields)}"
        )
    cells = [_encode(field, row[name]) for name, field in unischema.fields.items()]
    return Row(*unischema.fields)(*cells)


def _encode(field: UnischemaField, value: Any) -> Any:
    if value is None:
        if not field.nullable:
            raise ConfigError(f"Field {field.name!r} is not nullable, but its value is None")
        return None
    if (codec := _codec_of(field)) is not None:
        return codec.encode(field, value)
    return value.tolist() if isinstance(value, np.generic) else value


def _spark_type(field: UnischemaField) -> Any:
    """Return the Spark type of a field's column."""
    if (codec := _codec_of(field)) is not None:
        return codec.spark_dtype()
    if field.shape:
        raise ConfigError(
            f"The non-scalar field {field.name!r} has codec set to None: set one, such as NdarrayCodec()"
        )
    raise ConfigError(
        f"Was not able to map type {field.numpy_dtype} of field {field.name!r} to a spark type"
    )


def _codec_of(field: UnischemaField) -> Any:
    name = None if field.codec or field.shape else default_spark_type(field.numpy_dtype)
    return as_column_codec(field.codec) if name is None else ScalarCodec(name)


def default_spark_type(numpy_dtype: Any) -> str | None:
    """Return the name of the Spark type of scalars without a codec; None if there is no default."""
    if numpy_dtype is Decimal or numpy_dtype is None:
        return None
    dtype = np.dtype(numpy_dtype)
    if dtype.kind in "SU":
        return "string"
    # Spark has no unsigned integer of 64 bits
    return (
        name_of_arrow(arrow_for_spark(arrow_type_of_dtype(dtype)))
        if dtype.kind in "biuf" and dtype != np.uint64
        else None
    )
