"""Batches of a converter as a ``tf.data.Dataset`` of named tuples."""

from __future__ import annotations

import tensorflow as tf

from data_stack.loader import Loader
from data_stack.util.named_rows import row_type

__all__ = ["named_batches"]


def named_batches(loader: Loader, prefetch: int | None) -> tf.data.Dataset:
    """The batches, dicts of columns, as named tuples of tensors.

    Args:
        loader: of dicts.
        prefetch: batches that are made ahead; None: as TensorFlow likes.
    """
    batches = loader.tensorflow().dataset()
    names = list(batches.element_spec)
    row = row_type("Row", tuple(names))
    named = batches.map(lambda batch: row(*[batch[name] for name in names]))
    return named.prefetch(tf.data.AUTOTUNE if prefetch is None else prefetch)
