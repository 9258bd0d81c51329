"""Programs as users of Petastorm write them: datasets of Spark and trainings of torch, with nothing but the import replaced."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from data_stack_petastorm import TransformSpec, make_reader
from data_stack_petastorm.codecs import CompressedImageCodec, NdarrayCodec, ScalarCodec
from data_stack_petastorm.pytorch import DataLoader
from data_stack_petastorm.spark import SparkDatasetConverter, make_spark_converter
from data_stack_petastorm.spark_utils import dataset_as_rdd
from data_stack_petastorm.unischema import Unischema, UnischemaField, dict_to_spark_row
from torch import nn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

metadata = pytest.importorskip("data_stack_petastorm.etl.dataset_metadata")


def write(spark: SparkSession, url: str, schema: Unischema, rows: list[dict[str, Any]]) -> None:
    with metadata.materialize_dataset(spark, url, schema, 1):
        encoded = spark.sparkContext.parallelize(rows, 2).map(lambda row: dict_to_spark_row(schema, row))
        spark.createDataFrame(encoded, schema.as_spark_schema()).write.mode("overwrite").parquet(url)


def test_hello_world_is_written_and_read_by_python_torch_and_spark(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.types import IntegerType

    hello = Unischema(
        "Hello",
        [
            UnischemaField("id", np.int32, (), ScalarCodec(IntegerType()), False),
            UnischemaField("picture", np.uint8, (16, 32, 3), CompressedImageCodec("png"), False),
            UnischemaField("cube", np.uint8, (None, 4, None), NdarrayCodec(), False),
        ],
    )
    url, draws = f"file://{tmp_path}/hello", np.random.default_rng(0)
    rows = [
        {"id": n, "picture": draws.integers(0, 255, (16, 32, 3), np.uint8), "cube": np.full((2, 4, 3), n, np.uint8)}
        for n in range(10)
    ]
    write(spark, url, hello, rows)

    with make_reader(url) as reader:
        found = {int(row.id): row for row in reader}
    with DataLoader(make_reader(url)) as loader:
        batch = next(iter(loader))
    rdd = dataset_as_rdd(url, spark, [hello.id, hello.picture])

    assert sorted(found) == list(range(10))
    np.testing.assert_array_equal(found[3].picture, rows[3]["picture"])
    assert (batch["cube"].shape, int(batch["cube"].max())) == ((1, 2, 4, 3), int(batch["id"]))
    assert (rdd.first()._fields, rdd.count()) == (("id", "picture"), 10)
    assert spark.sql(f"select count(id) from parquet.`{url}`").collect()[0][0] == 10  # a path of ours


def as_training(row: dict[str, Any]) -> dict[str, Any]:
    """A row as torchvision's transforms make it: an image as a tensor, the other field as it is, one left out."""
    return {
        "image": (torch.from_numpy(row["image"].reshape(1, 28, 28).copy()).float() / 255 - 0.13) / 0.31,
        "digit": row["digit"],
    }


def test_digits_are_trained_on_tensors_of_a_transform_that_names_no_fields(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.types import IntegerType

    digits = Unischema(
        "Digits",
        [
            UnischemaField("idx", np.int_, (), ScalarCodec(IntegerType()), False),
            UnischemaField("digit", np.int_, (), ScalarCodec(IntegerType()), False),
            UnischemaField("image", np.uint8, (28, 28), NdarrayCodec(), False),
        ],
    )
    url = f"file://{tmp_path}/digits"
    write(spark, url, digits, [{"idx": n, "digit": n % 10, "image": np.full((28, 28), n, np.uint8)} for n in range(60)])
    transform = TransformSpec(as_training, removed_fields=["idx"])
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.LogSoftmax(1))
    losses, n_rows = [], 0

    with DataLoader(make_reader(url, num_epochs=2, transform_spec=transform, seed=1, shuffle_rows=True), batch_size=32) as loader:
        for row in loader:
            losses.append(nn.functional.nll_loss(model(row["image"]), row["digit"]))
            torch.autograd.backward(losses[-1])
            n_rows += len(row["digit"])

    assert (n_rows, row["image"].shape[1:], row["image"].dtype) == (120, (1, 28, 28), torch.float32)
    assert all(torch.isfinite(loss) for loss in losses)


def test_vectors_of_spark_are_trained_on_without_an_end_and_tested_once(spark: SparkSession, tmp_path: Path) -> None:
    lines = "".join(f"{n % 2} {1 + n % 3}:{n / 60} 4:1\n" for n in range(60))
    (tmp_path / "rows.libsvm").write_text(lines, encoding="ascii")
    frame = spark.read.format("libsvm").option("numFeatures", "4").load(f"file://{tmp_path}/rows.libsvm")
    training, held_out = frame.selectExpr("features", "cast(label as long) as label").randomSplit([0.8, 0.2], seed=5)
    spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, f"file://{tmp_path}/cache")
    converters = make_spark_converter(training), make_spark_converter(held_out)
    model = nn.Linear(4, 2)

    with converters[0].make_torch_dataloader(batch_size=16) as loader:
        for step, batch in enumerate(loader):
            torch.autograd.backward(nn.functional.cross_entropy(model(batch["features"]), batch["label"]))
            if step > 5:
                break
    with converters[1].make_torch_dataloader(num_epochs=1) as loader:
        n_tested = sum(len(model(batch["features"])) for batch in loader)

    assert (len(converters[0]) + n_tested, len(converters[1])) == (60, n_tested)
    for converter in converters:
        converter.delete()
    assert list((tmp_path / "cache").iterdir()) == []
