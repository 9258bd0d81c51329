"""Petastorm's adapters for TensorFlow: a reader's rows as a ``tf.data.Dataset`` of named tuples."""

from __future__ import annotations

import datetime
import weakref
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.formats.parquet import Field
from data_stack_petastorm.buffer import shuffle
from data_stack_petastorm.columns import NanForNull, check_reader, names_left_out
from data_stack_petastorm.iteration import Reader
from data_stack_petastorm.rows import row_type
from data_stack_petastorm.schemas import as_schema

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingDependencyError(
        "data_stack_petastorm.tf_utils", "tensorflow", "tensorflow"
    ) from error

#: How Petastorm converts dtypes that few operations of TensorFlow support.
_PROMOTED: Final = {"u2": np.int32, "u4": np.int64}
_ROWS_AT_ONCE: Final = 256
#: The rows that further calls of tf_tensors for a reader, and runs of their graphs, return.
_iterators: weakref.WeakKeyDictionary[Any, tuple[Any, Any]] = weakref.WeakKeyDictionary()


def make_petastorm_dataset(reader: Any) -> tf.data.Dataset:
    """Make a dataset of a reader's rows: named tuples of tensors; for n-grams, dicts of them by offset.

    ::

        with make_reader("file:///data/frames", num_epochs=10, seed=7) as reader:
            for row in make_petastorm_dataset(reader).batch(64): ...

    The reader's schema determines the signature: dtypes and shapes, with None for a size that differs. ``uint16`` becomes
    ``int32`` and ``uint32`` ``int64``; text and bytes become ``tf.string``, Decimals their normalised text, dates and times
    ``int64`` nanoseconds since 1970. If all values of each field have one shape, rows are read in batches, which TensorFlow
    unbatches. Each iteration over the dataset begins with the next epochs of the reader, so ``repeat`` works, in other orders. In
    a graph of TensorFlow 1, the dataset has ``make_one_shot_iterator``.

    Args:
        reader: a reader of :func:`make_reader` or :func:`make_batch_reader`, or a WeightedSamplingReader.

    Warns:
        UserWarning: structs, maps or nested lists of :func:`make_batch_reader` are left out.

    Raises:
        ConfigError: TensorFlow has no tensors for the values of a field. While iterating, errors are TensorFlow's and contain our
            message, for example that a value is missing.
    """
    check_reader(reader)
    names_left_out(reader, warns=True)
    fields, signature = _fields_of(reader), _signature_of(reader)
    is_graph = not (tf.executing_eagerly() or tf.inside_function())
    is_whole = isinstance(reader, Reader) and not reader.batched_output
    if (
        is_whole
        and not is_graph
        and fields
        and all(None not in field.shape for field in fields.values())
    ):
        batches = reader.loader(_ROWS_AT_ONCE, transform=_Columns(fields))
        together = {
            key: tf.TensorSpec((None, *spec.shape), spec.dtype) for key, spec in signature.items()
        }
        dataset = batches.tensorflow().dataset(output_signature=together).unbatch()
        n_rows = tf.data.INFINITE_CARDINALITY if reader.num_epochs is None else len(reader)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(n_rows))
    else:
        kind = (
            tf.compat.v1.data.Dataset if is_graph else tf.data.Dataset
        )  # the former has make_one_shot_iterator
        dataset = kind.from_generator(lambda: _rows(reader, fields), output_signature=signature)
    return dataset.map(_builder(reader))


def tf_tensors(reader: Any, shuffling_queue_capacity: int = 0, min_after_dequeue: int = 0) -> Any:
    """Return the next row of a reader as tensors; a graph returns the next row at each run.

    ::

        @tf.function
        def step():
            row = tf_tensors(reader)
            ...

    This works in a ``tf.function`` and in a graph of TensorFlow 1 (``tf.compat.v1.Session``). All calls for a reader share its
    rows.

    Args:
        reader: as for :func:`make_petastorm_dataset`.
        shuffling_queue_capacity: size of the shuffle buffer; 0: the reader's order.
        min_after_dequeue: ignored; the buffer is kept full.

    Raises:
        tf.errors.OutOfRangeError: the reader has no more rows.
        ConfigError: ``shuffling_queue_capacity`` is set for a reader of row groups.
    """
    check_reader(reader)
    if reader.batched_output and shuffling_queue_capacity > 0:
        raise ConfigError(
            "shuffling_queue_capacity does not shuffle row groups: pass shuffle_rows=True, or use make_reader"
        )
    names_left_out(reader, warns=True)
    signature = _signature_of(reader)

    def take() -> list[Any]:
        return _next_values(reader, shuffling_queue_capacity)

    if tf.executing_eagerly():
        try:
            tensors = [
                tf.constant(value, spec.dtype)
                for value, spec in zip(take(), signature.values(), strict=True)
            ]
        except StopIteration:
            raise tf.errors.OutOfRangeError(None, None, "the reader has no more rows") from None
    else:
        tensors = tf.numpy_function(take, [], [spec.dtype for spec in signature.values()])
        for tensor, spec in zip(tensors, signature.values(), strict=True):
            tensor.set_shape(spec.shape)
    return _builder(reader)(dict(zip(signature, tensors, strict=True)))


def _next_values(reader: Any, capacity: int) -> list[Any]:
    """Return the values of the next row, in the order of its signature.

    Raises:
        StopIteration: the reader has no more rows.
    """
    known = _iterators.get(reader)
    if known is None or known[0] != capacity:
        rows = shuffle(_rows_left(reader, _fields_of(reader)), capacity, getattr(reader, "seed", 0))
        known = _iterators[reader] = capacity, rows
    try:
        return list(next(known[1]).values())
    except StopIteration:
        del _iterators[reader]  # after reset() of the reader, the next call starts again
        raise


# ---------------------------------------------------------------------- fields


def _fields_of(reader: Any) -> dict[str, Field]:
    """Return the fields of a row by name; for n-grams, by offset and name."""
    fields = as_schema(reader.schema).fields
    return {
        name if step is None else f"{step} {name}": fields[name]
        for step, names in _steps_of(reader).items()
        for name in names
    }


def _steps_of(reader: Any) -> dict[int | None, tuple[str, ...]]:
    """Return the names of the fields at each offset of an n-gram; those of a row under None."""
    ngram = reader.ngram
    if ngram is None:
        left_out = names_left_out(reader)
        return {None: tuple(name for name in reader.schema.fields if name not in left_out)}
    steps = range(min(ngram.fields), max(ngram.fields) + 1)
    return {step: tuple(ngram.get_field_names_at_timestep(step)) for step in steps}


def _signature_of(reader: Any) -> dict[str, tf.TensorSpec]:
    return {key: _spec(field, reader.batched_output) for key, field in _fields_of(reader).items()}


def _spec(field: Field, batched: bool) -> tf.TensorSpec:
    dtype = field.dtype
    if not isinstance(dtype, np.dtype) or dtype.kind in "US":
        found = tf.string
    elif dtype.kind == "M":
        found = tf.int64
    else:
        try:
            found = tf.dtypes.as_dtype(_PROMOTED.get(dtype.str[1:], dtype))
        except TypeError:
            found = tf.variant
    if found in (tf.variant, tf.resource) or (isinstance(dtype, np.dtype) and dtype.kind in "Om"):
        raise ConfigError(
            f"field {field.name!r} has values of dtype {dtype}, for which TensorFlow has no tensors: exclude it with "
            f"schema_fields=, or convert it to numbers by a TransformSpec"
        )
    return tf.TensorSpec((None, *field.shape) if batched else field.shape, found)


def _builder(reader: Any) -> Callable[..., Any]:
    """Return a function that makes a row from its tensors."""
    name, names = as_schema(reader.schema).name, _steps_of(reader)

    def build(tensors: dict[str, Any]) -> Any:
        rows = {
            step: row_type(name, of_step)._make(
                [tensors[each if step is None else f"{step} {each}"] for each in of_step]
            )
            for step, of_step in names.items()
        }
        return rows[None] if reader.ngram is None else rows

    return tf.autograph.experimental.do_not_convert(build)  # type: ignore[no-any-return]  # untyped


# ---------------------------------------------------------------------- values


class _Columns:
    """Converts the columns of a batch of rows or n-grams for TensorFlow; it runs in the workers."""

    def __init__(self, fields: dict[str, Field]) -> None:
        self._fields = fields

    def __call__(self, batch: Any) -> dict[str, Any]:
        flat = {}
        for key, value in batch.items():
            parts = (
                {f"{key} {name}": column for name, column in value.items()}
                if isinstance(value, dict)
                else {key: value}
            )
            flat.update(parts)
        return {key: _column(field, flat[key]) for key, field in self._fields.items()}


def _rows(reader: Any, fields: dict[str, Field]) -> Iterator[dict[str, Any]]:
    """Iterate over rows or row groups; reset a reader that is at its end."""
    if getattr(reader, "last_row_consumed", False):
        reader.reset()
    yield from _rows_left(reader, fields)


def _rows_left(reader: Any, fields: dict[str, Field]) -> Iterator[dict[str, Any]]:
    convert = _column if reader.batched_output else _value
    nan_for_null = NanForNull(fields.values() if getattr(reader, "fills_nulls", False) else ())
    fill = nan_for_null.column if reader.batched_output else nan_for_null.value
    for row in reader:
        if reader.ngram is None:
            found = row._asdict()
        else:
            found = {
                f"{step} {name}": value
                for step, part in row.items()
                for name, value in part._asdict().items()
            }
        yield {key: convert(field, fill(field.name, found[key])) for key, field in fields.items()}


def _column(field: Field, column: npt.NDArray[Any]) -> Any:
    if column.dtype.kind not in "OUS":
        return _plain(column)
    values = [_value(field, value) for value in column]
    if field.shape and len({np.shape(value) for value in values}) > 1:
        raise TypeError(
            f"field {field.name!r} has arrays of different shapes in one row group: use make_reader, and pad them with "
            f"padded_batch(…)"
        )
    return (
        np.array(values, dtype=object if isinstance(values[0], (str, bytes)) else None)
        if values
        else []
    )


def _value(field: Field, value: Any) -> Any:
    if value is None:
        raise TypeError(
            f"field {field.name!r} has a row without a value (None), for which TensorFlow has no tensors: exclude such rows "
            f"(predicate=col({field.name!r}).is_valid()), replace None by a TransformSpec, or read floats as NaN "
            f"(nulls='nan')"
        )
    if isinstance(value, Decimal):
        return str(value.normalize())
    if isinstance(value, (datetime.date, datetime.datetime)):
        return _plain(np.array(value, dtype="M8[ns]"))
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind not in "OUS":
        return _plain(np.asarray(value))
    return value


def _plain(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if values.dtype.kind == "M":
        return values.astype("M8[ns]").astype(np.int64)
    promoted = _PROMOTED.get(values.dtype.str[1:])
    return values if promoted is None else values.astype(promoted)
