"""Batches of a converter as a ``tf.data.Dataset`` of named tuples."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

from data_stack.exception import MissingDependencyError

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingDependencyError("make_tf_dataset", "tensorflow", "tensorflow") from error

if TYPE_CHECKING:
    from data_stack.loader.tensorflow import TensorFlowLoader

__all__ = ["named_batches"]


def named_batches(loader: TensorFlowLoader, prefetch: int | None) -> tf.data.Dataset:
    """The batches, dicts of tensors, as named tuples.

    Args:
        loader: of dicts.
        prefetch: batches that are made ahead; None: as TensorFlow likes.
    """
    batches = loader.dataset()
    names = list(batches.element_spec)
    make: Any = namedtuple  # mypy wants to see the names
    row = make("Row", names, rename=True)  # the columns are data
    named = batches.map(lambda batch: row(*[batch[name] for name in names]))
    return named.prefetch(tf.data.AUTOTUNE if prefetch is None else prefetch)
