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
from data_stack_petastorm.iteration import Reader
from data_stack_petastorm.rows import row_type

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingDependencyError("data_stack_petastorm.tf_utils", "tensorflow", "tensorflow") from error

__all__ = ["make_petastorm_dataset", "tf_tensors"]

#: What Petastorm makes of dtypes that TensorFlow's operations know little of.
_PROMOTED: Final = {"u2": np.int32, "u4": np.int64}
_ROWS_AT_ONCE: Final = 256
#: What the calls of tf_tensors for a reader go on with.
_iterators: weakref.WeakKeyDictionary[Any, tuple[Any, Any]] = weakref.WeakKeyDictionary()


def make_petastorm_dataset(reader: Any) -> tf.data.Dataset:
    """The rows of a reader as a dataset: named tuples of tensors, of n-grams a dict of them for each offset.

    ::

        with make_reader("file:///data/frames", num_epochs=10, seed=7) as reader:
            for row in make_petastorm_dataset(reader).batch(64): ...

    Its signature follows from the reader's schema: dtypes, shapes, None where a size differs. ``uint16`` becomes ``int32`` and
    ``uint32`` ``int64``; text and bytes are ``tf.string``, Decimals their normalised text, dates and times ``int64``, nanoseconds
    since 1970. Rows are read together and taken apart by TensorFlow where all values of a field have one shape. Each iteration
    over the dataset begins the next epochs of the reader, so ``repeat`` works, and gives another order each time.

    Args:
        reader: of :func:`make_reader`, :func:`make_batch_reader` or several of them.

    Raises:
        ConfigError: a field has values that TensorFlow has no tensors for. While iterating: errors are TensorFlow's, with our
            text in them, such as that a field has no value in some row.
    """
    fields = _fields_of(reader)
    signature = {key: _spec(field, reader.batched_output) for key, field in fields.items()}
    is_whole = isinstance(reader, Reader) and not reader.batched_output
    if is_whole and fields and all(None not in field.shape for field in fields.values()):
        batches = reader.loader(_ROWS_AT_ONCE, transform=_Columns(fields))
        together = {key: tf.TensorSpec((None, *spec.shape), spec.dtype) for key, spec in signature.items()}
        dataset = batches.tensorflow().dataset(output_signature=together).unbatch()
        n_rows = tf.data.INFINITE_CARDINALITY if reader.num_epochs is None else len(reader)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(n_rows))
    else:
        dataset = tf.data.Dataset.from_generator(lambda: _rows(reader, fields), output_signature=signature)
    return dataset.map(_builder(reader))


def tf_tensors(reader: Any, shuffling_queue_capacity: int = 0, min_after_dequeue: int = 0) -> Any:
    """The next row of a reader as tensors: what one run of Petastorm's graph gives.

    Each call gives the next one. Graphs and sessions of TensorFlow 1 are not supported: a loop over
    :func:`make_petastorm_dataset` does the same in both modes.

    Args:
        reader: as there.
        shuffling_queue_capacity: rows are drawn from a buffer of so many; 0: in the reader's order.
        min_after_dequeue: no effect; the buffer is kept full.

    Raises:
        tf.errors.OutOfRangeError: there are no more rows.
        ConfigError: TensorFlow builds a graph at the moment; or row groups are to be shuffled, which are shuffled by the reader.
    """
    if not tf.executing_eagerly():
        raise ConfigError(
            "tf_tensors gives values, it builds no graph: take make_petastorm_dataset(reader), which tf.function knows"
        )
    if reader.batched_output and shuffling_queue_capacity > 0:
        raise ConfigError("a buffer of row groups shuffles no rows: take shuffle_rows=True of the reader, or make_reader")
    wanted = shuffling_queue_capacity, min_after_dequeue
    known = _iterators.get(reader)
    if known is None or known[0] != wanted:
        dataset = make_petastorm_dataset(reader)
        if shuffling_queue_capacity > 0:
            dataset = dataset.shuffle(shuffling_queue_capacity, seed=reader.seed)
        known = _iterators[reader] = wanted, iter(dataset)
    try:
        return next(known[1])
    except StopIteration:
        del _iterators[reader]  # the next call begins anew
        raise tf.errors.OutOfRangeError(None, None, "the reader has no more rows") from None


# ---------------------------------------------------------------------- fields


def _fields_of(reader: Any) -> dict[str, Field]:
    """The fields of a row in order, by name; of an n-gram those of each offset, by offset and name."""
    if reader.ngram is None:
        return dict(reader.schema.fields)
    return {f"{offset} {name}": reader.schema[name] for offset, names in reader.ngram.fields.items() for name in names}


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
            f"field {field.name!r} has values of dtype {dtype}, which TensorFlow has no tensors for: leave it out with "
            f"schema_fields=, or make numbers of it by a TransformSpec"
        )
    return tf.TensorSpec((None, *field.shape) if batched else field.shape, found)


def _builder(reader: Any) -> Callable[..., Any]:
    """Makes a row of its tensors."""
    name = reader.schema.name
    steps: Any = [None] if reader.ngram is None else range(min(reader.ngram.fields), max(reader.ngram.fields) + 1)
    names = {step: tuple(reader.schema.fields if step is None else reader.ngram.fields.get(step, ())) for step in steps}

    def build(tensors: dict[str, Any]) -> Any:
        rows = {
            step: row_type(name, of_step)._make([tensors[each if step is None else f"{step} {each}"] for each in of_step])
            for step, of_step in names.items()
        }
        return rows[None] if reader.ngram is None else rows

    return tf.autograph.experimental.do_not_convert(build)  # type: ignore[no-any-return]  # untyped


# ---------------------------------------------------------------------- values


class _Columns:
    """The columns of a batch of rows or n-grams, with values that TensorFlow has; it runs in the workers."""

    def __init__(self, fields: dict[str, Field]) -> None:
        self._fields = fields

    def __call__(self, batch: Any) -> dict[str, Any]:
        flat = {}
        for key, value in batch.items():
            parts = {f"{key} {name}": column for name, column in value.items()} if isinstance(value, dict) else {key: value}
            flat.update(parts)
        return {key: _column(field, flat[key]) for key, field in self._fields.items()}


def _rows(reader: Any, fields: dict[str, Field]) -> Iterator[dict[str, Any]]:
    """Row by row, or row group by row group."""
    if reader.last_row_consumed:
        reader.reset()
    convert = _column if reader.batched_output else _value
    for row in reader:
        if reader.ngram is None:
            found = row._asdict()
        else:
            found = {f"{step} {name}": value for step, part in row.items() for name, value in part._asdict().items()}
        yield {key: convert(field, found[key]) for key, field in fields.items()}


def _column(field: Field, column: npt.NDArray[Any]) -> Any:
    if column.dtype.kind not in "OUS":
        return _plain(column)
    values = [_value(field, value) for value in column]
    if field.shape and len({np.shape(value) for value in values}) > 1:
        raise TypeError(
            f"field {field.name!r} has arrays of different shapes in one row group: take make_reader, and pad them by "
            f"padded_batch(…)"
        )
    return np.array(values, dtype=object if isinstance(values[0], (str, bytes)) else None) if values else []


def _value(field: Field, value: Any) -> Any:
    if value is None:
        raise TypeError(
            f"field {field.name!r} has a row without a value (None), which TensorFlow has no tensors for: leave such rows out "
            f"(predicate=col({field.name!r}).is_valid()), or put something in their place by a TransformSpec"
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
