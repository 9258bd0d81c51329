"""Command line arguments for a Spark session."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from data_stack.exception import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_configure_spark_arguments(argparser: ArgumentParser) -> None:
    """Add the arguments ``--master`` and ``--spark-session-config`` to a parser."""
    argparser.add_argument(
        "--master",
        help='master of Spark, such as "local[4]" for this machine; Spark\'s own default otherwise',
    )
    argparser.add_argument(
        "--spark-session-config",
        nargs="+",
        metavar="KEY=VALUE",
        help="settings of the session, such as spark.executor.cores=2",
    )


def configure_spark(
    spark_session_builder: SparkSession.Builder, args: Namespace
) -> SparkSession.Builder:
    """Configure a builder by the arguments of a command line.

    Args:
        spark_session_builder: the builder, which is changed.
        args: parsed arguments of a parser with :func:`add_configure_spark_arguments`.

    Returns:
        The builder.

    Raises:
        RuntimeError: the parser lacks the arguments.
        ConfigError (a ValueError): a setting is not of the form ``key=value``.
    """
    if "spark_session_config" not in args or "master" not in args:
        raise RuntimeError(
            "the parser lacks --master and --spark-session-config: call add_configure_spark_arguments(parser)"
        )
    settings = [pair.partition("=") for pair in args.spark_session_config or ()]
    for key, equals, value in settings:
        if not key or not equals:
            raise ConfigError(f"expected a Spark setting key=value, got {key + equals + value!r}")
    for key, _, value in settings:
        spark_session_builder.config(key, value)
    if args.master:
        spark_session_builder.master(args.master)
    return spark_session_builder
