"""The tensors of a reader's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import tensorflow as tf

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field
from data_stack_petastorm.nested_columns import names_without_tensors
from data_stack_petastorm.rows import row_type
from data_stack_petastorm.schemas import as_schema

#: How Petastorm converts dtypes that few operations of TensorFlow support, by the name of the
#: dtype without its byte order.
PROMOTED_DTYPES: Final = {"u2": np.int32, "u4": np.int64}


def flat_key(offset: int | None, name: str) -> str:
    """Return the key of a field in a flat row.

    Args:
        offset: the offset of an n-gram; None for rows.
        name: name of the field.
    """
    if offset is None:
        return name
    return f"{offset} {name}"


def flatten(batch: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the columns (or values) of a batch of rows or n-grams by their keys in a flat row."""
    flat: dict[str, Any] = {}
    for key, value in batch.items():
        if isinstance(value, dict):
            for name, column in value.items():
                flat[flat_key(key, name)] = column
        else:
            flat[key] = value
    return flat


class RowSignature:
    """The tensors of a reader's rows.

    Between Python and TensorFlow, a row is flat: a dict of tensors by key. The key is the name of a
    field; for n-grams, the offset and the name.

    Args:
        reader: any reader.

    Raises:
        ConfigError: TensorFlow has no tensors for the values of a field; the message names it.

    Attributes:
        fields: the field of each key.
        specs: the dtype and shape of each key's tensor.
    """

    fields: dict[str, Field]
    specs: dict[str, tf.TensorSpec]
    _is_ngram: bool
    #: The name of the schema, which the class of rows has.
    _schema_name: str
    #: The names of the fields at each offset; those of a row under None.
    _names_of_offset: dict[int | None, tuple[str, ...]]

    def __init__(self, reader: Any) -> None:
        schema = as_schema(reader.schema)
        self._is_ngram = reader.ngram is not None
        self._schema_name = schema.name
        self._names_of_offset = _names_by_offset(reader)
        self.fields = {}
        self.specs = {}
        for offset, names in self._names_of_offset.items():
            for name in names:
                key = flat_key(offset, name)
                field = schema.fields[name]
                shape = field.shape
                if reader.batched_output:
                    shape = (None, *field.shape)  # the first axis is that of the rows
                self.fields[key] = field
                self.specs[key] = tf.TensorSpec(shape, _tensor_dtype(field))

    def make_builder(self) -> Callable[[Mapping[str, Any]], Any]:
        """Return a function that makes a named tuple of a flat row of tensors.

        For n-grams, it makes a dict of named tuples by offset. The function is marked, so that
        TensorFlow does not rewrite its code for graphs.
        """
        builder: Callable[[Mapping[str, Any]], Any]
        builder = tf.autograph.experimental.do_not_convert(self._build_row)
        return builder

    def _build_row(self, tensors: Mapping[str, Any]) -> Any:
        rows: dict[int | None, Any] = {}
        for offset, names in self._names_of_offset.items():
            values = [tensors[flat_key(offset, name)] for name in names]
            rows[offset] = row_type(self._schema_name, names)._make(values)
        if self._is_ngram:
            return rows
        return rows[None]


def _names_by_offset(reader: Any) -> dict[int | None, tuple[str, ...]]:
    """Return the names of the fields at each offset of an n-gram; those of a row under None."""
    if reader.ngram is not None:
        return {
            offset: tuple(reader.ngram.get_field_names_at_timestep(offset))
            for offset in reader.ngram.offsets
        }
    omitted = names_without_tensors(reader)
    return {None: tuple(name for name in reader.schema.fields if name not in omitted)}


def _tensor_dtype(field: Field) -> tf.DType:
    """Return the dtype of the tensor of a field.

    Raises:
        ConfigError: TensorFlow has no tensors for the values of the field.
    """
    dtype = field.dtype
    if not isinstance(dtype, np.dtype):
        return tf.string  # Decimals are text
    if dtype.kind in "US":
        return tf.string
    if dtype.kind == "M":
        return tf.int64  # nanoseconds
    is_object_or_duration = dtype.kind in "Om"
    if not is_object_or_duration:
        try:
            tensor_dtype = tf.dtypes.as_dtype(PROMOTED_DTYPES.get(dtype.str[1:], dtype))
        except TypeError:
            tensor_dtype = None
        if tensor_dtype not in (None, tf.variant, tf.resource):
            return tensor_dtype
    raise ConfigError(
        f"field {field.name!r} has values of dtype {dtype}, for which TensorFlow has no tensors: "
        "exclude it with schema_fields=, or convert it to numbers by a TransformSpec"
    )
