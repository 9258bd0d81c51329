"""Petastorm's names for Spark: its converter, and its schemas, written by Spark."""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import pickle
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import numpy as np
import pytest
from data_stack_petastorm import make_reader
from data_stack_petastorm.codecs import (
    CompressedImageCodec,
    DataframeColumnCodec,
    NdarrayCodec,
    ScalarCodec,
)
from data_stack_petastorm.etl.dataset_metadata import get_schema, materialize_dataset
from data_stack_petastorm.spark import SparkDatasetConverter, make_spark_converter
from data_stack_petastorm.spark_utils import dataset_as_rdd
from data_stack_petastorm.tools.spark_session_cli import (
    add_configure_spark_arguments,
    configure_spark,
)
from data_stack_petastorm.unischema import Unischema, UnischemaField, dict_to_spark_row
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import FloatType, StringType

from data_stack.formats.parquet import ParquetDataset
from data_stack.testing.comparing import assert_same

SETTING = SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF


@pytest.fixture
def frame(spark: SparkSession, tmp_path: Path) -> Iterator[DataFrame]:
    """40 rows of all kinds of numbers, in one file; the session names the folder of converters."""
    spark.conf.set(SETTING, f"file://{tmp_path}/cache")
    yield spark.range(0, 40, 1, 1).selectExpr(
        "id",
        "id % 2 = 0 as even",
        "cast(id as byte) as small",
        "id / 8D as part",
        "array(id * 1D, 1D) as pair",
    )
    spark.conf.unset(SETTING)


def test_defaults_are_petastorms(frame: DataFrame) -> None:
    import torch  # which executors, that import this module, do without
    from data_stack_petastorm.pytorch import DataLoader

    converter = make_spark_converter(frame)

    with converter.make_torch_dataloader(num_epochs=1) as loader:
        batches = list(loader)
    with converter.make_torch_dataloader() as endless:
        assert endless.reader.num_epochs is None
        n_rows = sum(len(batch["id"]) for batch in itertools.islice(endless, 5))
        assert n_rows > len(converter)

    assert isinstance(endless, DataLoader)
    assert {name: column.dtype for name, column in batches[0].items()} == {
        "id": torch.int64,
        "even": torch.uint8,
        "small": torch.int8,
        "part": torch.float32,
        "pair": torch.float32,
    }
    assert [len(batch["id"]) for batch in batches] == [32, 8]
    assert torch.cat([batch["id"] for batch in batches]).sort().values.tolist() == list(range(40))
    assert (converter.dataset_size, len(converter), len(converter.file_urls)) == (40, 40, 1)
    assert os.path.isdir(converter.cache_dir_url.removeprefix("file://"))
    converter.delete()
    assert not os.path.exists(converter.cache_dir_url.removeprefix("file://"))


def test_arguments_reach_the_reader_and_the_loader(frame: DataFrame) -> None:
    import torch
    from data_stack_petastorm.pytorch import BatchedDataLoader

    made = make_spark_converter(frame, dtype=None)
    converter: SparkDatasetConverter = pickle.loads(pickle.dumps(made))
    arguments: dict[str, Any] = {
        "data_loader_fn": BatchedDataLoader,
        "schema_fields": ["id", "part"],
        "results_queue_size": 9,
        "hdfs_driver": "libhdfs",
        "cache_type": "null",
        "shard_seed": 3,
        "shuffle_row_drop_partitions": 1,
        "predicate": None,
        "reader_pool_type": "dummy",
    }

    with (
        pytest.warns(UserWarning, match="shard_seed"),
        converter.make_torch_dataloader(4, 1, **arguments) as loader,
    ):
        batch = next(iter(loader))
    with (
        pytest.raises(TypeError, match="unexpected keyword argument 'xyz'"),
        converter.make_torch_dataloader(xyz=1),
    ):
        pass

    assert isinstance(loader, BatchedDataLoader)
    assert list(batch) == ["id", "part"]
    assert batch["part"].dtype == torch.float64
    assert loader.reader.stopped


def test_folders_that_cannot_be_used_are_refused(spark: SparkSession, frame: DataFrame) -> None:
    spark.conf.unset(SETTING)
    with pytest.raises(ValueError, match="Please set the spark config"):
        make_spark_converter(frame)
    spark.conf.set(SETTING, "/tmp/cache")  # not written to
    with pytest.raises(ValueError, match="/tmp/cache"):
        make_spark_converter(frame)


def test_what_petastorm_warns_of_is_logged(
    spark: SparkSession,
    frame: DataFrame,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "14.3")
    monkeypatch.setenv("HOROVOD_RANK", "1")
    monkeypatch.setenv("HOROVOD_SIZE", "3")

    with caplog.at_level(logging.WARNING, "data_stack"):
        converter = make_spark_converter(frame.repartition(3))
        with converter.make_torch_dataloader(cur_shard=0, shard_count=3):
            pass

    for text in ("median size", "cur_shard=1, shard_count=3"):
        assert text in caplog.text
    with pytest.raises(ValueError, match="file:/dbfs"):
        make_spark_converter("/tmp/saved")  # not written to


def test_a_command_line_configures_the_session() -> None:
    builder = Mock()
    parser = argparse.ArgumentParser()
    with pytest.raises(RuntimeError, match="add_configure_spark_arguments"):
        configure_spark(builder, parser.parse_args([]))
    add_configure_spark_arguments(parser)
    returned = configure_spark(
        builder,
        parser.parse_args(["--master", "local[1]", "--spark-session-config", "a=1", "b=x=2"]),
    )

    assert builder.mock_calls == [
        call.config("a", "1"),
        call.config("b", "x=2"),
        call.master("local[1]"),
    ]
    assert returned is builder
    with pytest.raises(ValueError, match="key=value"):
        configure_spark(builder, parser.parse_args(["--spark-session-config", "wrong"]))


# ---------------------------------------------------------------------- schemas that Spark writes


class HexCodec(DataframeColumnCodec):
    """A codec of a user's: bytes as text."""

    def encode(self, unischema_field: Any, value: Any) -> Any:
        return value.tobytes().hex()

    def decode(self, unischema_field: Any, value: Any) -> Any:
        return np.frombuffer(bytes.fromhex(value), unischema_field.numpy_dtype)

    def spark_dtype(self) -> Any:
        return StringType()


Frames = Unischema(
    "Frames",
    [
        UnischemaField("id", np.int64, ()),
        UnischemaField("small", np.uint8, (), None, True),
        UnischemaField("half", np.float16, ()),
        UnischemaField("speed", np.float32, (), ScalarCodec(FloatType()), False),
        UnischemaField("text", np.bytes_, ()),
        UnischemaField("time", np.datetime64, (), ScalarCodec("timestamp"), False),
        UnischemaField("price", Decimal, (), ScalarCodec("decimal(10,3)"), False),
        UnischemaField("image", np.uint8, (4, 5, 3), CompressedImageCodec("png"), False),
        UnischemaField("words", np.str_, (None,), NdarrayCodec(), False),
        UnischemaField("hex", np.uint16, (2,), HexCodec(), False),
    ],
)


def row(i: int) -> dict[str, Any]:
    return {
        "id": np.int32(i),
        "small": None if i == 3 else np.int64(i),
        "half": i / 2,
        "speed": np.float64(i) / 10,
        "text": f"text {i}",
        "time": datetime(2024, 1, 1, 0, 0, 0, i, timezone.utc),
        "price": i,
        "image": np.full((4, 5, 3), i, np.uint8),
        "words": np.array(["a", "bcd"]),
        "hex": np.array([i, 2], np.uint16),
    }


def test_a_schema_of_petastorm_is_written_by_spark_and_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    from data_stack_petastorm.pytorch import DataLoader

    url = f"file://{tmp_path}/frames"
    with materialize_dataset(spark, url, Frames, row_group_size_mb=1):
        rows = [dict_to_spark_row(Frames, row(i)) for i in range(10)]
        spark.createDataFrame(rows, Frames.as_spark_schema()).coalesce(1).write.parquet(url)

    dataset = ParquetDataset(tmp_path / "frames")

    numbers = {
        "id": np.int64(4),
        "small": np.uint8(4),
        "half": np.float16(2),
        "speed": np.float32(0.4),
        "text": b"text 4",
    }
    others = {"time": np.datetime64("2024-01-01T00:00:00.000004", "us"), "price": Decimal(4)}
    assert_same(
        dataset[4],
        {**numbers, **others, **{name: row(4)[name] for name in ("image", "words", "hex")}},
    )
    assert (dataset[3]["small"], get_schema(tmp_path / "frames")) == (None, Frames)
    with DataLoader(make_reader(url, ["id", "image"])) as loader:
        assert all((batch["image"] == batch["id"]).all() for batch in loader)
    rdd = dataset_as_rdd(url, spark, [Frames.id, Frames.image])
    assert (rdd.first()._fields, rdd.count()) == (("id", "image"), 10)
    assert (
        spark.sql(f"select count(id) from parquet.`{url}`").collect()[0][0] == 10
    )  # a path of ours


@pytest.mark.parametrize(
    ("name", "value"), [("id", 1.5), ("small", 256), ("image", None), ("more", 1)]
)
def test_values_that_would_change_are_refused(name: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=name):
        dict_to_spark_row(Frames, {**row(1), name: value})
