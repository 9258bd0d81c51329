"""The Spark session to work with, and where its URLs lie."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from data_stack.exception import ConfigError, StorageError
from data_stack.io.folder import Folder, folder_of
from data_stack.io.url import StorageURL
from data_stack_spark.hadoop import HadoopFolder

__all__ = ["folder_of_url", "local_path", "map_in_arrow", "readable_source", "spark_session"]


def spark_session(spark: SparkSession | None = None) -> SparkSession:
    """The given session, else the one that is active, else a new one with Spark's own configuration.

    Raises:
        ConfigError: there is no Java, or Spark does not start.
    """
    session = spark or SparkSession.getActiveSession()
    if session is None:
        try:
            session = SparkSession.builder.getOrCreate()
        except Exception as error:  # Java's, py4j's or Spark's own, by version
            java = os.environ.get("JAVA_HOME") or shutil.which("java") or "none, as no java is on PATH and JAVA_HOME is not set"
            raise ConfigError(f"Spark did not start; it needs Java 17 or newer, and finds {java}: {error!s:.500}") from error
    return session


def map_in_arrow(frame: DataFrame, function: Callable[[Iterable[Any]], Iterator[Any]], schema: StructType) -> DataFrame:
    """``frame.mapInArrow``, which warns of pandas ≥ 3 although no pandas is in it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        return frame.mapInArrow(function, schema)


def local_path(url: str) -> str | None:
    """The folder of this machine that a URL or path means; None where it lies elsewhere."""
    scheme, colon, rest = url.partition(":")
    if not colon or "/" in scheme:
        return os.path.abspath(os.path.expanduser(url))
    if scheme.lower() == "dbfs" and os.path.isdir("/dbfs"):  # Databricks mounts its store there
        return os.path.join("/dbfs", unquote(rest.lstrip("/")))
    parts = StorageURL.parse(url)
    return None if parts is None or parts.scheme != "file" else os.path.abspath(parts.local_path())


def folder_of_url(url: str, spark: SparkSession | None = None) -> Folder:
    """The folder at ``url``: of this machine, or of any file system that Spark writes to, by Spark's own client for it.

    Raises:
        StorageError: Spark knows no such file system.
    """
    path = local_path(url)
    if path is not None:
        return folder_of(path)
    try:
        return HadoopFolder.at(spark_session(spark).sparkContext, url)
    except StorageError:
        raise
    except Exception as error:  # of py4j and Java
        raise StorageError(f"Spark cannot reach {url!r}: {error!s:.300}") from error


def readable_source(url: str) -> str:
    """What ``ParquetDataset`` takes, without Spark, for a folder that Spark knows by ``url``."""
    path = local_path(url)
    if path is not None:
        return path
    for scheme in ("s3a://", "s3n://"):  # Hadoop's names for what all others call s3
        if url.startswith(scheme):
            return "s3://" + url[len(scheme) :]
    return url
