"""Granular's own names: its readers, writers, sources and loader with its arguments, on data_stack's records and loader."""

from __future__ import annotations

from data_stack_granular import sources
from data_stack_granular.bag import BagReader, BagWriter
from data_stack_granular.dataset import DatasetReader, DatasetWriter
from data_stack_granular.formats import decoders, encoders
from data_stack_granular.loader import Loader
from data_stack_granular.sharded import ShardedDatasetReader, ShardedDatasetWriter

__all__ = [
    "BagReader",
    "BagWriter",
    "DatasetReader",
    "DatasetWriter",
    "Loader",
    "ShardedDatasetReader",
    "ShardedDatasetWriter",
    "decoders",
    "encoders",
    "sources",
]
