"""Work that leaves this process: preparing datasets by several processes or by Spark, and Spark's DataFrames as datasets."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_stack.dataset.engine import PreparationEngine
    from data_stack.distributed.processes import ProcessEngine
    from data_stack.distributed.spark import SparkEngine
    from data_stack.distributed.spark_converter import (
        SparkDatasetConverter,
        make_spark_converter,
        register_delete_dir_handler,
    )
    from data_stack.distributed.spark_materialize import materialize_dataset
    from data_stack.distributed.spark_reading import dataset_as_dataframe, dataset_as_rdd
    from data_stack.distributed.spark_rows import dict_to_spark_row, encode_rows

#: Imported when they are first asked for: whatever is Spark's needs pyspark.
_MODULES = {
    "PreparationEngine": "data_stack.dataset.engine",
    "ProcessEngine": "data_stack.distributed.processes",
    "SparkDatasetConverter": "data_stack.distributed.spark_converter",
    "SparkEngine": "data_stack.distributed.spark",
    "dataset_as_dataframe": "data_stack.distributed.spark_reading",
    "dataset_as_rdd": "data_stack.distributed.spark_reading",
    "dict_to_spark_row": "data_stack.distributed.spark_rows",
    "encode_rows": "data_stack.distributed.spark_rows",
    "make_spark_converter": "data_stack.distributed.spark_converter",
    "materialize_dataset": "data_stack.distributed.spark_materialize",
    "register_delete_dir_handler": "data_stack.distributed.spark_converter",
}

__all__ = [
    "PreparationEngine",
    "ProcessEngine",
    "SparkDatasetConverter",
    "SparkEngine",
    "dataset_as_dataframe",
    "dataset_as_rdd",
    "dict_to_spark_row",
    "encode_rows",
    "make_spark_converter",
    "materialize_dataset",
    "register_delete_dir_handler",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
