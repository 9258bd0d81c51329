"""The Spark session, and the places of its URLs."""

from __future__ import annotations

import os
import shutil
from urllib.parse import unquote

from pyspark.sql import SparkSession

from data_stack.exception import ConfigError
from data_stack.io.url import StorageURL


def spark_session(spark: SparkSession | None = None) -> SparkSession:
    """Return the given session, or the active one, or a new one with Spark's configuration.

    Raises:
        ConfigError: Java is missing, or Spark does not start.
    """
    session = spark or SparkSession.getActiveSession()
    if session is None:
        try:
            session = SparkSession.builder.getOrCreate()
        except Exception as error:  # an error of Java, py4j or Spark, depending on the version
            java = (
                os.environ.get("JAVA_HOME")
                or shutil.which("java")
                or "none: java is not on PATH, and JAVA_HOME is not set"
            )
            raise ConfigError(
                f"Spark did not start; it requires Java 17 or newer and found {java}: {error!s:.500}"
            ) from error
    return session


def local_path(url: str) -> str | None:
    """Return the local path of a URL or path; None if it is remote."""
    scheme, colon, rest = url.partition(":")
    if not colon or "/" in scheme:
        return os.path.abspath(os.path.expanduser(url))
    if scheme.lower() == "dbfs" and os.path.isdir("/dbfs"):  # Databricks mounts its store there
        return os.path.join("/dbfs", unquote(rest.lstrip("/")))
    parts = StorageURL.parse(url)
    return None if parts is None or parts.scheme != "file" else os.path.abspath(parts.local_path())


def readable_source(url: str) -> str:
    """Return the source for ``ParquetDataset`` of a URL of Spark: a local path, or the URL."""
    return local_path(url) or url
