"""Spark: preparations in its executors, datasets that it writes and reads, its DataFrames as datasets."""

import importlib
from typing import Any

#: Module of each public name; importing Spark's Python API takes a second.
_MODULES = {
    **dict.fromkeys(("SparkDatasetConverter", "make_spark_converter", "register_delete_dir_handler"), "converter"),
    **dict.fromkeys(("local_path", "readable_source", "spark_session"), "session"),
    "SparkEngine": "engine",
    "encode_rows": "rows",
    "dataset_as_rdd": "reading",
    "materialize_dataset": "materialize",
    "spark_schema": "types",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
