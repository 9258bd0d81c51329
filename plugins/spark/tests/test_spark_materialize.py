"""Datasets that Spark writes with our schema, and reads decoded."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_stack_spark.materialize import materialize_dataset
from data_stack_spark.reading import dataset_as_rdd
from data_stack_spark.rows import encode_partition, encode_rows
from frame_rows import SCHEMA, row
from pyspark.sql import SparkSession

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, NdarrayCodec, ParquetDataset, Schema
from data_stack.testing.comparing import assert_same

ROW_GROUP_BYTES = "parquet.block.size"
TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"


def check_rows(samples: list[Any], expected: list[dict[str, Any]]) -> None:
    assert_same(sorted(samples, key=lambda sample: sample["id"]), expected)


def test_a_block_that_raises_leaves_settings_and_metadata_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set(ROW_GROUP_BYTES, "777")
    spark.conf.set(TIMESTAMP_TYPE, "INT96")
    url = str(tmp_path / "t")

    with pytest.raises(ZeroDivisionError):
        with materialize_dataset(spark, url, SCHEMA, row_group_size_mb=3):
            inside = (hadoop.get(ROW_GROUP_BYTES), spark.conf.get(TIMESTAMP_TYPE))
            encode_rows([row(0)], SCHEMA, spark).coalesce(1).write.parquet(url)
            _ = 1 // 0

    after = (hadoop.get(ROW_GROUP_BYTES), spark.conf.get(TIMESTAMP_TYPE))
    hadoop.unset(ROW_GROUP_BYTES)
    spark.conf.unset(TIMESTAMP_TYPE)
    assert inside == (str(3 << 20), "TIMESTAMP_MICROS")
    assert after == ("777", "INT96")
    assert hadoop.get("parquet.summary.metadata.level") is None
    assert not (tmp_path / "t" / "_common_metadata").exists()


def test_partition_columns_are_fields(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema(
        "parts",
        [
            Field("id", np.int64),
            Field("part", np.int32),
            Field("vector", np.float32, (2,), NdarrayCodec()),
        ],
    )
    rows = [{"id": i, "part": i % 2, "vector": np.full(2, i, np.float32)} for i in range(6)]
    url = str(tmp_path / "t")

    with materialize_dataset(spark, url, schema):
        encode_rows(rows, schema, spark).coalesce(1).write.partitionBy("part").parquet(url)

    assert ParquetDataset(url).schema.fields == schema.fields
    check_rows(list(ParquetDataset(url)), rows)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"image": np.zeros((4, 5), np.uint8)}, "field 'image'"),
        ({"id": None}, "field 'id'.*not nullable"),
        ({"nmae": 1}, "'nmae'.*did you mean 'name'"),
    ],
)
def test_the_error_of_an_invalid_row_names_the_field(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        list(encode_partition(SCHEMA, [{**row(1), **change}]))


# ------------------------------------------------------------------ reading


def test_an_rdd_gives_decoded_named_tuples(spark: SparkSession, tmp_path: Path) -> None:
    written = tmp_path / "frames"
    with materialize_dataset(spark, written.as_uri(), SCHEMA):  # in two files
        encode_rows(spark.sparkContext.parallelize(range(40), 2).map(row), SCHEMA).write.parquet(
            written.as_uri()
        )

    rdd = dataset_as_rdd(written.as_uri(), spark)
    rows = rdd.collect()
    filtered_rows = dataset_as_rdd(
        written, spark, ["na.*", "id"], filters=[("id", "<", 4)]
    ).collect()

    assert ParquetDataset(written).schema == SCHEMA
    assert rdd.getNumPartitions() == len(ParquetDataset(written).block_lengths)
    assert rows[0]._fields == tuple(SCHEMA.fields)
    check_rows([named_row._asdict() for named_row in rows], [row(i) for i in range(40)])
    assert pickle.loads(pickle.dumps(rows[0])).id == rows[0].id
    assert sorted(map(tuple, filtered_rows)) == [(i, row(i)["name"]) for i in range(4)]
