"""Codecs for Parquet's own scalars, lists, tensors and nested values, under one name."""

from typing import Literal

from data_stack.formats.parquet.codecs.list_codec import ListCodec
from data_stack.formats.parquet.codecs.nested_codec import NestedCodec
from data_stack.formats.parquet.codecs.scalar_codec import ScalarCodec
from data_stack.formats.parquet.codecs.tensor_codec import TensorCodec

__all__ = ["ListCodec", "NestedCodec", "Nulls", "ScalarCodec", "TensorCodec"]

Nulls = Literal["none", "nan", "mask"]
"""How a dataset reads nulls, see :class:`~data_stack.formats.parquet.ParquetDataset`."""
