"""Petastorm's adapters for TensorFlow: a reader's rows as named tuples of tensors."""

from __future__ import annotations

from data_stack.exception import MissingDependencyError

try:
    import tensorflow  # noqa: F401  # the modules below need it
except ImportError as error:
    raise MissingDependencyError(
        "data_stack_petastorm.tf_utils", "tensorflow", "tensorflow"
    ) from error

from data_stack_petastorm.tf_utils.dataset import make_petastorm_dataset
from data_stack_petastorm.tf_utils.next_row import tf_tensors

__all__ = ["make_petastorm_dataset", "tf_tensors"]
