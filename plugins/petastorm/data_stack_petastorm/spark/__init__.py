"""Petastorm's converter of Spark's DataFrames."""

from data_stack_petastorm.spark.spark_dataset_converter import (
    SparkDatasetConverter,
    make_spark_converter,
)

__all__ = ["SparkDatasetConverter", "make_spark_converter"]
