"""Petastorm's torch loaders: batches of a reader's rows as tensors."""

from __future__ import annotations

from data_stack.exception import MissingDependencyError

try:
    import torch  # noqa: F401  # the modules below need it
except ImportError as error:
    raise MissingDependencyError("data_stack_petastorm.pytorch", "torch", "torch") from error

from data_stack_petastorm.pytorch.batched_data_loader import BatchedDataLoader
from data_stack_petastorm.pytorch.collation import decimal_friendly_collate
from data_stack_petastorm.pytorch.data_loader import DataLoader
from data_stack_petastorm.pytorch.in_memory import InMemBatchedDataLoader, load_rows_into_memory
from data_stack_petastorm.pytorch.loader_base import LoaderBase
from data_stack_petastorm.pytorch.tensors import sanitize_row

__all__ = [
    "BatchedDataLoader",
    "DataLoader",
    "InMemBatchedDataLoader",
    "LoaderBase",
    "decimal_friendly_collate",
]

# Names that Petastorm's own tests, and programs after their example, import from here.
_load_rows_into_mem = load_rows_into_memory
_sanitize_pytorch_types = sanitize_row
