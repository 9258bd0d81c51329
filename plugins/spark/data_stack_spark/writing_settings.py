"""Settings of a Spark session while it writes Parquet."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

_TIMESTAMP_TYPE: Final = "spark.sql.parquet.outputTimestampType"

#: The settings of Parquet in Hadoop's configuration, or as options of a writer.
SUMMARY_LEVEL: Final = "parquet.summary.metadata.level"
ROW_GROUP_BYTES: Final = "parquet.block.size"

#: After how many rows Parquet checks the size of a row group. By default it does so every 100 rows,
#: but row groups of large cells have few rows.
MIN_ROWS_TO_CHECK: Final = "parquet.page.size.row.check.min"
N_ROWS_TO_CHECK: Final = "3"

#: The settings belong to the session: one block at a time changes and restores them.
_SETTINGS_LOCK = threading.RLock()


@contextlib.contextmanager
def writing_settings(
    spark: SparkSession, hadoop_settings: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Let Spark write timestamps as microseconds in the block. Restore all settings afterwards.

    Args:
        spark: the session that writes.
        hadoop_settings: further settings for the block, of Hadoop's configuration.
    """
    settings = dict(hadoop_settings or {})
    hadoop_configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()
    with _SETTINGS_LOCK:
        timestamp_type_before = spark.conf.get(_TIMESTAMP_TYPE, None)
        settings_before = {key: hadoop_configuration.get(key) for key in settings}
        try:
            # INT96, the default, holds nanoseconds: it lacks the years before 1677 and after 2262.
            spark.conf.set(_TIMESTAMP_TYPE, "TIMESTAMP_MICROS")
            for key, value in settings.items():
                hadoop_configuration.set(key, value)
            yield
        finally:
            for key, value_before in settings_before.items():
                if value_before is None:
                    hadoop_configuration.unset(key)
                else:
                    hadoop_configuration.set(key, value_before)
            if timestamp_type_before is None:
                spark.conf.unset(_TIMESTAMP_TYPE)
            else:
                spark.conf.set(_TIMESTAMP_TYPE, timestamp_type_before)
