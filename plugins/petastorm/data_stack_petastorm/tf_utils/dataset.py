"""Petastorm's ``make_petastorm_dataset``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import tensorflow as tf

from data_stack_petastorm.any_reader import check_reader, is_at_end
from data_stack_petastorm.nested_columns import names_without_tensors, warn_of_omitted_columns
from data_stack_petastorm.reader.reader import Reader
from data_stack_petastorm.tf_utils.row_signature import RowSignature
from data_stack_petastorm.tf_utils.values import ColumnConverter, iterate_flat_rows

#: Number of rows of the batches that TensorFlow unbatches.
_ROWS_AT_ONCE: Final = 256


def make_petastorm_dataset(reader: Any) -> tf.data.Dataset:
    """Make a dataset of a reader's rows: named tuples of tensors; for n-grams, dicts of them.

    ::

        with make_reader("file:///data/frames", num_epochs=10, seed=7) as reader:
            for row in make_petastorm_dataset(reader).batch(64):
                ...

    The reader's schema determines the dtypes and shapes of the tensors; a size that differs from
    row to row is None.

    * ``uint16`` becomes ``int32``, and ``uint32`` becomes ``int64``.
    * Text and bytes become ``tf.string``. So do Decimals, as normalized text.
    * Dates and times become ``int64``, in nanoseconds since 1970.

    If all values of each field have one shape, rows are read in batches, which TensorFlow
    unbatches: this is faster. Each iteration over the dataset begins with the reader's next epoch,
    so ``repeat`` works, and its passes have different orders. In a graph of TensorFlow 1, the
    dataset has ``make_one_shot_iterator``.

    Args:
        reader: a reader of :func:`make_reader` or :func:`make_batch_reader`, or a
            WeightedSamplingReader.

    Warns:
        UserWarning: structs, maps or nested lists of :func:`make_batch_reader` are left out.

    Raises:
        ConfigError: TensorFlow has no tensors for the values of a field. While iterating, errors
            are TensorFlow's and contain our message, for example that a value is missing.
    """
    check_reader(reader)
    warn_of_omitted_columns(names_without_tensors(reader))
    signature = RowSignature(reader)
    # A tf.function is traced as a graph, too, but has the datasets of TensorFlow 2.
    is_graph = not tf.executing_eagerly() and not tf.inside_function()
    if not is_graph and _can_be_batched(reader, signature):
        dataset = _unbatch_loader(reader, signature)
    else:
        dataset_class = tf.data.Dataset
        if is_graph:
            # Only the class of TensorFlow 1 has make_one_shot_iterator.
            dataset_class = tf.compat.v1.data.Dataset

        def iterate_pass() -> Iterator[dict[str, Any]]:
            return _iterate_pass(reader, signature)

        dataset = dataset_class.from_generator(iterate_pass, output_signature=signature.specs)
    return dataset.map(signature.make_builder())


def _can_be_batched(reader: Any, signature: RowSignature) -> bool:
    """Return whether a loader can read the rows in batches.

    For this, all rows of a field need tensors of the same shape.
    """
    if not isinstance(reader, Reader) or reader.batched_output:
        return False
    if not signature.fields:
        return False
    return all(None not in field.shape for field in signature.fields.values())


def _unbatch_loader(reader: Reader, signature: RowSignature) -> tf.data.Dataset:
    """Return a dataset of the flat rows of a reader, which a loader reads in batches."""
    loader = reader.loader(_ROWS_AT_ONCE, transform=ColumnConverter(signature.fields))
    specs_of_batches = {}
    for key, spec in signature.specs.items():
        specs_of_batches[key] = tf.TensorSpec((None, *spec.shape), spec.dtype)
    dataset = loader.tensorflow().dataset(output_signature=specs_of_batches).unbatch()
    if reader.num_epochs is None:
        n_rows = tf.data.INFINITE_CARDINALITY
    else:
        n_rows = len(reader)
    return dataset.apply(tf.data.experimental.assert_cardinality(n_rows))


def _iterate_pass(reader: Any, signature: RowSignature) -> Iterator[dict[str, Any]]:
    """Iterate over the flat rows of a reader, from the start if it is at its end."""
    if is_at_end(reader):
        reader.reset()
    yield from iterate_flat_rows(reader, signature.fields)
