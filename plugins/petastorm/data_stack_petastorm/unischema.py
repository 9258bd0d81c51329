"""Petastorm's schemas, as its programs declare them."""

from __future__ import annotations

import re
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
from data_stack.util.program_lines import warn_program
from data_stack.values.named_rows import row_type
from data_stack_petastorm.codecs import ScalarCodec, as_column_codec
from data_stack_petastorm.unischema_field import UnischemaField

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
    """A schema: the fields of a dataset, in their order. Each field is also an attribute.

    ::

        Frames = Unischema("Frames", [
            UnischemaField("id", np.int64, (), ScalarCodec(LongType()), False),
            UnischemaField("image", np.uint8, (32, 16, 3), CompressedImageCodec("png"), False),
        ])
        make_reader(url, schema_fields=[Frames.id])

    Args:
        name: name of the schema.
        fields: the fields.

    Warns:
        UserWarning: a field has the name of a method, so that it is only available as
            ``schema.fields[name]``.
    """

    #: The name of the schema. Programs of Petastorm use this attribute.
    _name: str
    #: The fields by name.
    _fields: OrderedDict[str, UnischemaField]

    def __init__(self, name: str, fields: Iterable[UnischemaField]) -> None:
        self._name = name
        self._fields = OrderedDict((field.name, field) for field in fields)
        for field_name in self._fields:
            if hasattr(type(self), field_name):
                warn_program(
                    f"Can not create dynamic property {field_name}: Unischema has one of this "
                    f"name; use fields[{field_name!r}]",
                    package=__package__,
                )

    def __getattr__(self, name: str) -> UnischemaField:
        # Python calls this only for names that are not attributes. While a schema is unpickled, it
        # has no ``_fields`` yet.
        fields: dict[str, UnischemaField] = self.__dict__.get("_fields", {})
        if name not in fields:
            raise AttributeError(f"{type(self).__name__} has no attribute and no field {name!r}")
        return fields[name]

    @property
    def fields(self) -> OrderedDict[str, UnischemaField]:
        """The fields by name."""
        return self._fields

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Unischema):
            return False
        return self._name == other._name and self._fields == other._fields

    def __hash__(self) -> int:
        return hash((self._name, tuple(self._fields)))

    def __str__(self) -> str:
        lines = [f"  {_shown_field(field)},\n" for field in self._fields.values()]
        return f"{type(self).__name__}({self._name}, [\n{''.join(lines)}])"

    __repr__ = __str__

    def create_schema_view(self, fields: Iterable[str | UnischemaField]) -> Unischema:
        """Return a schema of some fields of this one, with the name ``<name>_view``.

        Args:
            fields: fields of this schema, and regular expressions that match the whole names of
                fields. An expression may match nothing.

        Raises:
            ConfigError: an element has another type, or this schema lacks the field.
        """
        fields = list(fields)  # a message shows them all
        patterns: list[str] = []
        names: list[str] = []
        for field in fields:
            if isinstance(field, str):
                patterns.append(field)
            elif isinstance(field, tuple):
                names.append(field[0])
            else:
                raise ConfigError(
                    "fields must be either a string (a regular expression) or a UnischemaField, "
                    f"got {fields!r:.200}"
                )
        for name in names:
            if name not in self._fields:
                raise ConfigError(
                    f"field {name!r} does not belong to the schema {self._name}: "
                    f"{', '.join(self._fields)}"
                )
        names += [field.name for field in match_unischema_fields(self, patterns)]
        unique_names = dict.fromkeys(names)
        return Unischema(f"{self._name}_view", [self._fields[name] for name in unique_names])

    def make_namedtuple(self, **values: Any) -> Any:
        """Return a row as a named tuple of the class ``<name>_view``.

        Schemas of the same name and fields share the class.

        Args:
            **values: a value for each field, by name.
        """
        return self._row_type(**values)

    def make_namedtuple_tf(self, *values: Any, **named: Any) -> Any:
        """Return a row of tensors as a named tuple, by position or by name."""
        return self._row_type(*values, **named)

    def _get_namedtuple(self) -> Any:
        """Return the class of the rows of :meth:`make_namedtuple`.

        Programs of Petastorm call this method.
        """
        return self._row_type

    @property
    def _row_type(self) -> Any:
        """The class of rows."""
        return row_type(f"{self._name}_view", tuple(self._fields))

    def as_spark_schema(self) -> StructType:
        """Return the Spark schema of the encoded cells; requires pyspark.

        Raises:
            ConfigError: a field without a codec has a shape, or a type that Spark lacks.
        """
        from pyspark.sql.types import StructField, StructType

        spark_fields = [
            StructField(field.name, _spark_type(field), bool(field.nullable))
            for field in self._fields.values()
        ]
        return StructType(spark_fields)

    @classmethod
    def from_arrow_schema(
        cls, parquet_dataset: Any, omit_unsupported_fields: bool = True
    ) -> Unischema:
        """Return a schema without codecs, inferred from the columns of a Parquet dataset.

        Args:
            parquet_dataset: a :class:`pyarrow.Schema`, or an object with one as ``schema``, such as
                ``pyarrow.parquet.ParquetDataset``. The schema includes the columns of partitions.
            omit_unsupported_fields: whether to omit columns of structs, maps, nested lists and
                other types that NumPy lacks, with a warning.

        Raises:
            ConfigError: a column has such a type, and ``omit_unsupported_fields`` is False.
        """
        fields = []
        for column in _arrow_schema_of(parquet_dataset):
            field = _field_of_column(column)
            if field is not None:
                fields.append(field)
            elif omit_unsupported_fields:
                warn_program(
                    f"Column {column.name!r} has the unsupported type {column.type} and is omitted",
                    package=__package__,
                )
            else:
                raise ConfigError(
                    "Cannot auto-create unischema due to unsupported column type "
                    f"{column.type} of column {column.name!r}"
                )
        return cls("inferred_schema", fields)


def schema_name(schema: Unischema) -> str:
    """Return the name of a schema.

    It is not a public attribute of :class:`Unischema`, because a field may have its name.
    """
    return schema._name


def match_unischema_fields(schema: Unischema, field_regex: Sequence[str]) -> list[UnischemaField]:
    """Return the fields whose whole names match a regular expression, in the order of the schema.

    Args:
        schema: the schema.
        field_regex: the regular expressions; a field matches if any of them does.

    Warns:
        UserWarning: an expression matches only the beginning of a name. Petastorm before 0.7
            returned such fields, too.
    """
    matching = []
    matching_only_before = []
    for name, field in schema.fields.items():
        if any(re.fullmatch(pattern, name) for pattern in field_regex):
            matching.append(field)
        elif any(re.match(pattern, name) for pattern in field_regex):
            matching_only_before.append(name)
    if matching_only_before:
        warn_program(
            "schema_fields behavior has changed: a regular expression must match the entire field "
            f"name. This affects {', '.join(sorted(matching_only_before))}",
            package=__package__,
        )
    return matching


# ------------------------------------------------------------------------------------ rows of Spark


def insert_explicit_nulls(unischema: Unischema, row_dict: dict[str, Any]) -> None:
    """Set missing nullable fields of a row to None, in place.

    Raises:
        ConfigError: the row lacks a field that is not nullable.
    """
    for name, field in unischema.fields.items():
        if name in row_dict:
            continue
        if not field.nullable:
            raise ConfigError(f"Field {name!r} is not found in the row, but is not nullable")
        row_dict[name] = None


def dict_to_spark_row(unischema: Unischema, row_dict: dict[str, Any]) -> Row:
    """Return a row for Spark, with encoded values in the order of the fields.

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
    unknown_names = sorted(set(row) - set(unischema.fields))
    if unknown_names:
        raise ConfigError(
            f"Dictionary fields do not match schema fields: {unknown_names[0]!r} is not one of "
            f"{', '.join(unischema.fields)}"
        )
    make_row = Row(*unischema.fields)
    cells = [_encode(field, row[name]) for name, field in unischema.fields.items()]
    return make_row(*cells)


def _encode(field: UnischemaField, value: Any) -> Any:
    """Return the cell for a value of a field.

    Raises:
        ConfigError: the value is None, and the field is not nullable.
        TypeError, ValueError: the value does not fit the field.
    """
    if value is None:
        if not field.nullable:
            raise ConfigError(f"Field {field.name!r} is not nullable, but its value is None")
        return None
    codec = _column_codec_of(field)
    if codec is not None:
        return codec.encode(field, value)
    if isinstance(value, np.generic):
        return value.tolist()
    return value


def _spark_type(field: UnischemaField) -> Any:
    """Return the Spark type of a field's column.

    Raises:
        ConfigError: the field has no codec, and Spark no type for it.
    """
    codec = _column_codec_of(field)
    if codec is not None:
        return codec.spark_dtype()
    if field.shape:
        raise ConfigError(
            f"The non-scalar field {field.name!r} has codec set to None: set one, such as "
            "NdarrayCodec()"
        )
    raise ConfigError(
        f"Was not able to map type {field.numpy_dtype} of field {field.name!r} to a spark type"
    )


def _column_codec_of(field: UnischemaField) -> Any:
    """Return the codec of a field as one of Petastorm.

    A scalar without a codec has a default one if Spark has a type for it. None if there is none.
    """
    if not field.codec and not field.shape:
        type_name = default_spark_type(field.numpy_dtype)
        if type_name is not None:
            return ScalarCodec(type_name)
    return as_column_codec(field.codec)


def default_spark_type(numpy_dtype: Any) -> str | None:
    """Return Spark's name of the type that scalars of a dtype have if their field has no codec.

    None if there is no such type.
    """
    if numpy_dtype is Decimal or numpy_dtype is None:
        return None
    dtype = np.dtype(numpy_dtype)
    if dtype.kind in "SU":
        return "string"
    if dtype == np.uint64:  # Spark has no unsigned integers, and no larger ones
        return None
    if dtype.kind in "biuf":
        return name_of_arrow(arrow_for_spark(arrow_type_of_dtype(dtype)))
    return None


# -------------------------------------------------------------------- texts and schemas of pyarrow


def _shown_field(field: UnischemaField) -> str:
    """Return a field as a line of code, for the text of a schema."""
    dtype_name = getattr(field.numpy_dtype, "__name__", field.numpy_dtype)
    return (
        f"UnischemaField({field.name!r}, {dtype_name}, {field.shape}, {field.codec}, "
        f"{field.nullable})"
    )


def _arrow_schema_of(parquet_dataset: Any) -> pa.Schema:
    """Return the schema of a dataset of pyarrow."""
    if isinstance(parquet_dataset, pa.Schema):
        return parquet_dataset
    schema = getattr(parquet_dataset, "schema", None)
    if isinstance(schema, pa.Schema):
        return schema
    # A dataset of old versions of pyarrow. Programs, and Petastorm's tests, still pass objects
    # with its attributes.
    first_piece = parquet_dataset.pieces[0]
    return first_piece.get_metadata().schema.to_arrow_schema()


def _field_of_column(column: pa.Field) -> UnischemaField | None:
    """Return the field for a column of scalars or of lists of scalars.

    None if NumPy lacks the type of the column.
    """
    shape: tuple[int | None, ...] = ()
    scalar_type = column.type
    if is_list(column.type):
        shape = (None,)
        scalar_type = column.type.value_type
    dtype: Any = dtype_of_arrow(scalar_type)
    if dtype is Decimal:
        return UnischemaField(column.name, Decimal, shape, None, column.nullable)
    if dtype.hasobject:
        return None
    return UnischemaField(column.name, dtype.type, shape, None, column.nullable)
