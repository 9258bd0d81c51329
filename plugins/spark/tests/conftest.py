"""One Spark for all tests of this folder, and one Java machine."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session ``local[2]`` that listens on loopback only. Not to be stopped."""
    folder = tmp_path_factory.mktemp("spark")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        # By default each task that is given up takes 2 s.
        "spark.python.task.killTimeout": "100ms",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).parents[3]), *filter(None, sys.path)]
        ),
        "spark.driver.extraJavaOptions": (
            f"-Dderby.system.home={folder} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        ),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]").appName("data_stack tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pandas, which it supports not fully
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    # stop() ends the context, not the Java machine, which waits for this process to end.
    gateway = SparkContext._gateway
    session.stop()
    if gateway is not None:
        gateway.shutdown()
        process = gateway.proc
        process.stdin.close()
        process.wait(30)
        SparkContext._gateway = SparkContext._jvm = None
