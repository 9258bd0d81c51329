"""Petastorm's datasets as RDDs of Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from data_stack.exception import MissingDependencyError

try:
    import data_stack_spark
except ImportError as error:
    raise MissingDependencyError(
        "data_stack_petastorm.spark_utils", "lazy-data-stack-spark", "spark"
    ) from error

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession


def dataset_as_rdd(
    dataset_url: str,
    spark_session: SparkSession,
    schema_fields: Iterable[Any] | None = None,
    hdfs_driver: str = "libhdfs3",
) -> RDD[Any]:
    """Return the rows of a dataset as an RDD of named tuples, decoded in Spark's executors.

    Args:
        dataset_url: URL of the dataset.
        spark_session: the session.
        schema_fields: fields, or regular expressions of whole names; None: all fields.
        hdfs_driver: ignored; pyarrow has one driver.

    Raises:
        ResourceNotFoundError: there are no Parquet files.
        ConfigError: a field does not exist.
    """
    names = None
    if schema_fields is not None:
        names = [getattr(field, "name", field) for field in schema_fields]
    return data_stack_spark.dataset_as_rdd(dataset_url, spark_session, names)
