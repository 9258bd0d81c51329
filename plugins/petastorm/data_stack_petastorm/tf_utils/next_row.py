"""Petastorm's ``tf_tensors``."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from data_stack.exception import ConfigError
from data_stack_petastorm.any_reader import check_reader, seed_of
from data_stack_petastorm.nested_columns import names_without_tensors, warn_of_omitted_columns
from data_stack_petastorm.shuffle_buffer import shuffle
from data_stack_petastorm.tf_utils.row_signature import RowSignature
from data_stack_petastorm.tf_utils.values import iterate_flat_rows


@dataclass(frozen=True)
class _SharedRows:
    """The rows that all calls for a reader take.

    Attributes:
        capacity: size of the shuffle buffer.
        rows: the flat rows that were not taken yet.
    """

    capacity: int
    rows: Iterator[dict[str, Any]]


#: The rows of each reader, which further calls of tf_tensors and runs of their graphs take.
_shared_rows: weakref.WeakKeyDictionary[Any, _SharedRows] = weakref.WeakKeyDictionary()


def tf_tensors(reader: Any, shuffling_queue_capacity: int = 0, min_after_dequeue: int = 0) -> Any:
    """Return the next row of a reader as tensors; a graph returns the next row at each run.

    ::

        @tf.function
        def step():
            row = tf_tensors(reader)
            ...

    This works in a ``tf.function`` and in a graph of TensorFlow 1 (``tf.compat.v1.Session``). All
    calls for a reader share its rows.

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
            "shuffling_queue_capacity does not shuffle row groups: pass shuffle_rows=True, or use "
            "make_reader"
        )
    warn_of_omitted_columns(names_without_tensors(reader))
    signature = RowSignature(reader)
    if tf.executing_eagerly():
        tensors = _take_tensors(reader, shuffling_queue_capacity, signature)
    else:
        tensors = _make_graph_tensors(reader, shuffling_queue_capacity, signature)
    build_row = signature.make_builder()
    return build_row(dict(zip(signature.specs, tensors, strict=True)))


def _take_tensors(reader: Any, capacity: int, signature: RowSignature) -> Sequence[Any]:
    """Return the tensors of the next row, in the order of the signature.

    Raises:
        tf.errors.OutOfRangeError: the reader has no more rows.
    """
    try:
        values = _take_values(reader, capacity, signature)
    except StopIteration:
        raise tf.errors.OutOfRangeError(None, None, "the reader has no more rows") from None
    tensors = []
    for value, spec in zip(values, signature.specs.values(), strict=True):
        tensors.append(tf.constant(value, spec.dtype))
    return tensors


def _make_graph_tensors(reader: Any, capacity: int, signature: RowSignature) -> Sequence[Any]:
    """Return tensors of a graph, in the order of the signature; each run takes another row."""

    def take_values() -> list[Any]:
        return _take_values(reader, capacity, signature)

    dtypes = [spec.dtype for spec in signature.specs.values()]
    tensors: Sequence[Any] = tf.numpy_function(take_values, [], dtypes)
    for tensor, spec in zip(tensors, signature.specs.values(), strict=True):
        tensor.set_shape(spec.shape)
    return tensors


def _take_values(reader: Any, capacity: int, signature: RowSignature) -> list[Any]:
    """Return the values of the next row, in the order of the signature.

    Raises:
        StopIteration: the reader has no more rows.
    """
    shared = _shared_rows.get(reader)
    if shared is None or shared.capacity != capacity:
        rows = iterate_flat_rows(reader, signature.fields)
        shared = _SharedRows(capacity, shuffle(rows, capacity, seed_of(reader)))
        _shared_rows[reader] = shared
    try:
        return list(next(shared.rows).values())
    except StopIteration:
        # After reset() of the reader, the next call iterates over its rows again.
        del _shared_rows[reader]
        raise
