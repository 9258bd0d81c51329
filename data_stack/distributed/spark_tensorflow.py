"""Batches of a converter as a ``tf.data.Dataset`` of named tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from data_stack.exception import MissingDependencyError
from data_stack.util.named_rows import row_type

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingDependencyError("make_tf_dataset", "tensorflow", "tensorflow") from error

if TYPE_CHECKING:
    from data_stack.loader.loader import TensorFlowLoader

__all__ = ["named_batches"]


def named_batches(loader: TensorFlowLoader, prefetch: int | None) -> tf.data.Dataset:
    """The batches, dicts of tensors, as named tuples.

    Args:
        loader: of dicts.
        prefetch: batches that are made ahead; None: as TensorFlow likes.
    """
    batches = loader.dataset()
    names = list(batches.element_spec)
    row = row_type("Row", tuple(names))
    named = batches.map(lambda batch: row(*[batch[name] for name in names]))
    return named.prefetch(tf.data.AUTOTUNE if prefetch is None else prefetch)
