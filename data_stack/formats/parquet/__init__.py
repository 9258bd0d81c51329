"""Parquet with tensors: schema and codecs, rows by position, predicates, row-group indexes, n-grams."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from data_stack.exception import MissingDependencyError

try:  # here, and not in each of the modules
    import pyarrow  # noqa: F401
except ImportError as error:
    raise MissingDependencyError("reading and writing Parquet", "pyarrow", "parquet") from error

if TYPE_CHECKING:
    from data_stack.formats.parquet.codecs import (
        ArrowCodec,
        CompressedNdarrayCodec,
        JpegCodec,
        ListCodec,
        NdarrayCodec,
        NestedCodec,
        PngCodec,
        ScalarCodec,
        TensorCodec,
    )
    from data_stack.formats.parquet.dataset import ParquetDataset
    from data_stack.formats.parquet.dataset_copying import copy_dataset
    from data_stack.formats.parquet.indexes import (
        IntersectIndexSelector,
        NotNullIndex,
        SingleFieldIndex,
        SingleIndexSelector,
        UnionIndexSelector,
    )
    from data_stack.formats.parquet.inference import infer_schema
    from data_stack.formats.parquet.metadata import ParquetManifest
    from data_stack.formats.parquet.metadata_generation import generate_metadata
    from data_stack.formats.parquet.ngram import NGram, NGramIterator
    from data_stack.formats.parquet.schema import Field, Schema
    from data_stack.formats.parquet.selecting import (
        Predicate,
        col,
        in_intersection,
        in_lambda,
        in_negate,
        in_pseudorandom_split,
        in_reduce,
        in_set,
    )
    from data_stack.formats.parquet.stored_indexes import build_indexes
    from data_stack.formats.parquet.transform import TransformSpec
    from data_stack.formats.parquet.writer import ParquetWriter

_MODULES = {
    "ArrowCodec": "codecs",
    "CompressedNdarrayCodec": "codecs",
    "Field": "schema",
    "IntersectIndexSelector": "indexes",
    "JpegCodec": "codecs",
    "ListCodec": "codecs",
    "NGram": "ngram",
    "NGramIterator": "ngram",
    "NdarrayCodec": "codecs",
    "NestedCodec": "codecs",
    "NotNullIndex": "indexes",
    "ParquetDataset": "dataset",
    "ParquetManifest": "metadata",
    "ParquetWriter": "writer",
    "PngCodec": "codecs",
    "Predicate": "selecting",
    "ScalarCodec": "codecs",
    "Schema": "schema",
    "SingleFieldIndex": "indexes",
    "SingleIndexSelector": "indexes",
    "TensorCodec": "codecs",
    "TransformSpec": "transform",
    "UnionIndexSelector": "indexes",
    "build_indexes": "stored_indexes",
    "col": "selecting",
    "copy_dataset": "dataset_copying",
    "generate_metadata": "metadata_generation",
    "in_intersection": "selecting",
    "in_lambda": "selecting",
    "in_negate": "selecting",
    "in_pseudorandom_split": "selecting",
    "in_reduce": "selecting",
    "in_set": "selecting",
    "infer_schema": "inference",
}

__all__ = [
    "ArrowCodec",
    "CompressedNdarrayCodec",
    "Field",
    "IntersectIndexSelector",
    "JpegCodec",
    "ListCodec",
    "NGram",
    "NGramIterator",
    "NdarrayCodec",
    "NestedCodec",
    "NotNullIndex",
    "ParquetDataset",
    "ParquetManifest",
    "ParquetWriter",
    "PngCodec",
    "Predicate",
    "ScalarCodec",
    "Schema",
    "SingleFieldIndex",
    "SingleIndexSelector",
    "TensorCodec",
    "TransformSpec",
    "UnionIndexSelector",
    "build_indexes",
    "col",
    "copy_dataset",
    "generate_metadata",
    "in_intersection",
    "in_lambda",
    "in_negate",
    "in_pseudorandom_split",
    "in_reduce",
    "in_set",
    "infer_schema",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
