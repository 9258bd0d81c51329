"""DataFrames of Spark as ``tf.data``; runs where TensorFlow is installed (``make test-all``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

tf = pytest.importorskip(
    "tensorflow", reason="tensorflow is not installed: `make test-all` brings it"
)


def test_a_dataframe_becomes_batches_of_named_tuples(spark: SparkSession, tmp_path: Path) -> None:
    from data_stack_petastorm.spark import SparkDatasetConverter, make_spark_converter

    spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, tmp_path.as_uri())
    frame = spark.range(50).selectExpr(
        "id", "array(id / 2D, 1D) as pair", "concat('t', id) as text"
    )
    converter = make_spark_converter(frame)

    with converter.make_tf_dataset(
        batch_size=16, num_epochs=2, shuffle_row_groups=False, workers_count=1
    ) as dataset:
        batches = list(dataset)
        pairs = [pair for pair, _ in dataset.map(lambda row: (row.pair, row.id))]

    assert [len(batch.id) for batch in batches] == [16] * 6 + [4]
    assert np.concatenate([batch.id.numpy() for batch in batches]).tolist() == [*range(50)] * 2
    assert batches[0].pair.dtype == tf.float32
    assert batches[0].text.numpy()[3] == b"t3"
    assert pairs[0].numpy().tolist() == [[i / 2, 1.0] for i in range(16)]
    converter.delete()
    spark.conf.unset(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF)
