"""Petastorm's own spellings: its readers and adapters with its arguments, made of a Parquet dataset and the one loader."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_stack.loader.petastorm.reader import Reader
    from data_stack.loader.petastorm.readers import make_batch_reader, make_reader
    from data_stack.loader.petastorm.tensorflow import make_petastorm_dataset as make_petastorm_dataset
    from data_stack.loader.petastorm.tensorflow import tf_tensors as tf_tensors
    from data_stack.loader.petastorm.torch import BatchedDataLoader as BatchedDataLoader
    from data_stack.loader.petastorm.torch import DataLoader as DataLoader
    from data_stack.loader.petastorm.torch import InMemBatchedDataLoader as InMemBatchedDataLoader
    from data_stack.loader.petastorm.torch import decimal_friendly_collate as decimal_friendly_collate
    from data_stack.loader.petastorm.weighted import WeightedSamplingReader

_MODULES = {
    "BatchedDataLoader": "torch",
    "DataLoader": "torch",
    "InMemBatchedDataLoader": "torch",
    "Reader": "reader",
    "WeightedSamplingReader": "weighted",
    "decimal_friendly_collate": "torch",
    "make_batch_reader": "readers",
    "make_petastorm_dataset": "tensorflow",
    "make_reader": "readers",
    "tf_tensors": "tensorflow",
}

#: The adapters need torch or TensorFlow, so a star import does not give them.
__all__ = ["Reader", "WeightedSamplingReader", "make_batch_reader", "make_reader"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
