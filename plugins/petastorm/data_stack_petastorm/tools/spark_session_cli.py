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
        help=(
            'master of Spark, such as "local[4]" for this machine; Spark\'s own default otherwise'
        ),
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
        ConfigError (a ValueError): a setting is not of the form ``key=value``; the builder is not
            changed.
    """
    if "spark_session_config" not in args or "master" not in args:
        raise RuntimeError(
            "the parser lacks --master and --spark-session-config: "
            "call add_configure_spark_arguments(parser)"
        )
    settings = [_parse_setting(text) for text in args.spark_session_config or ()]
    for key, value in settings:
        spark_session_builder.config(key, value)
    if args.master:
        spark_session_builder.master(args.master)
    return spark_session_builder


def _parse_setting(text: str) -> tuple[str, str]:
    """Return the key and the value of a setting; the value may have "=" in it.

    Raises:
        ConfigError: the text is not of the form ``key=value``.
    """
    key, equals_sign, value = text.partition("=")
    if not key or not equals_sign:
        raise ConfigError(f"expected a Spark setting key=value, got {text!r}")
    return key, value
