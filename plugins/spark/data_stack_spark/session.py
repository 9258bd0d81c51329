"""Spark sessions: the active one, or a new one."""

from __future__ import annotations

import os
import shutil
import sys

from pyspark.sql import SparkSession

from data_stack.exception import ConfigError


def spark_session(spark: SparkSession | None = None) -> SparkSession:
    """Return the given session, or the active one, or a new one with Spark's configuration.

    Raises:
        ConfigError: Java is missing, or Spark does not start.
    """
    session = spark or SparkSession.getActiveSession()
    if session is not None:
        return session
    try:
        return SparkSession.builder.getOrCreate()
    except Exception as error:  # an error of Java, py4j or Spark, depending on the version
        raise ConfigError(
            f"Spark did not start; it requires Java 17 or newer and found {_describe_java()}: "
            f"{error!s:.500}"
        ) from error


def _describe_java() -> str:
    """Return the place of the Java that Spark uses, for a message."""
    java = os.environ.get("JAVA_HOME") or shutil.which("java")
    if java is None:
        return "none: java is not on PATH, and JAVA_HOME is not set"
    return java


def start_session(master: str, title: str) -> SparkSession:
    """Start a session without the services that tasks do not need.

    Args:
        master: the cluster, ``"spark://host:7077"`` or ``"local[4]"``.
        title: the name of the application.

    Raises:
        ConfigError: Spark does not start.
    """
    builder = SparkSession.builder.appName(title).master(master)
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")

    is_local = master.startswith("local")
    python_before = os.environ.get("PYSPARK_PYTHON")
    if is_local:
        # Executors get the interpreter and the packages of this process. On other machines, these
        # may have other paths.
        if python_before is None:
            os.environ["PYSPARK_PYTHON"] = sys.executable
        python_path = os.pathsep.join(os.fspath(path) for path in sys.path if path)
        builder = builder.config("spark.executorEnv.PYTHONPATH", python_path)
        builder = builder.config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    try:
        return builder.getOrCreate()
    except Exception as error:  # errors of Spark, Java or others
        raise ConfigError(
            f"Spark could not be started with master {master!r}: {type(error).__name__}: {error}"
        ) from error
    finally:
        if is_local and python_before is None:
            del os.environ["PYSPARK_PYTHON"]
