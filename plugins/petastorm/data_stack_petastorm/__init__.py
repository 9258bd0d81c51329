"""Petastorm's readers and adapters, with its arguments, on top of data_stack.

They read Parquet datasets by :mod:`data_stack.formats.parquet`, and make batches by
:mod:`data_stack.loader`.
"""

from __future__ import annotations

import importlib
from typing import Any

from data_stack_petastorm.errors import NoDataAvailableError
from data_stack_petastorm.ngram import NGram
from data_stack_petastorm.reader import Reader, make_batch_reader, make_reader
from data_stack_petastorm.transform import TransformSpec
from data_stack_petastorm.weighted_sampling_reader import WeightedSamplingReader

#: Without the adapters, which need torch or TensorFlow, so that a star import works without these.
__all__ = [
    "NGram",
    "NoDataAvailableError",
    "Reader",
    "TransformSpec",
    "WeightedSamplingReader",
    "make_batch_reader",
    "make_reader",
]

#: By the name of an adapter, the module that defines it, which needs torch or TensorFlow.
_ADAPTERS = {
    "BatchedDataLoader": "pytorch",
    "DataLoader": "pytorch",
    "InMemBatchedDataLoader": "pytorch",
    "decimal_friendly_collate": "pytorch",
    "make_petastorm_dataset": "tf_utils",
    "tf_tensors": "tf_utils",
}


def __getattr__(name: str) -> Any:
    if name in _ADAPTERS:
        return getattr(importlib.import_module(f"{__name__}.{_ADAPTERS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
