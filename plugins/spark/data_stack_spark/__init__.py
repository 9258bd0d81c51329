"""Spark: preparations in its executors, datasets that it writes and reads, and its DataFrames as batches."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_stack_spark.converter import SparkDatasetConverter, make_spark_converter, register_delete_dir_handler
    from data_stack_spark.engine import SparkEngine
    from data_stack_spark.materialize import materialize_dataset
    from data_stack_spark.reading import dataset_as_dataframe, dataset_as_rdd
    from data_stack_spark.rows import dict_to_spark_row, encode_rows
    from data_stack_spark.types import spark_schema

# Imported when they are asked for: executors import this package, and Spark's Python API takes a second.
_MODULES = {
    "SparkDatasetConverter": "converter",
    "SparkEngine": "engine",
    "dataset_as_dataframe": "reading",
    "dataset_as_rdd": "reading",
    "dict_to_spark_row": "rows",
    "encode_rows": "rows",
    "make_spark_converter": "converter",
    "materialize_dataset": "materialize",
    "register_delete_dir_handler": "converter",
    "spark_schema": "types",
}

__all__ = [
    "SparkDatasetConverter",
    "SparkEngine",
    "dataset_as_dataframe",
    "dataset_as_rdd",
    "dict_to_spark_row",
    "encode_rows",
    "make_spark_converter",
    "materialize_dataset",
    "register_delete_dir_handler",
    "spark_schema",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
