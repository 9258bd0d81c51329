"""Datasets that Spark writes with schemas in Petastorm's spelling."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from data_stack_petastorm.codecs import CompressedImageCodec, DataframeColumnCodec, NdarrayCodec, ScalarCodec
from data_stack_petastorm.etl.dataset_metadata import get_schema, materialize_dataset
from data_stack_petastorm.unischema import Unischema, UnischemaField, dict_to_spark_row

from data_stack.formats.parquet import ParquetDataset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HexCodec(DataframeColumnCodec):
    """A codec of a user's: bytes as text."""

    def encode(self, unischema_field: Any, value: Any) -> Any:
        return value.tobytes().hex()

    def decode(self, unischema_field: Any, value: Any) -> Any:
        return np.frombuffer(bytes.fromhex(value), unischema_field.numpy_dtype)

    def spark_dtype(self) -> Any:
        from pyspark.sql.types import StringType

        return StringType()


Frames = Unischema(
    "Frames",
    [
        UnischemaField("id", np.int64, ()),
        UnischemaField("small", np.uint8, (), None, True),
        UnischemaField("half", np.float16, ()),
        UnischemaField("speed", np.float32, (), ScalarCodec("float"), False),
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


def test_a_schema_of_petastorms_spelling_is_written_by_spark_and_read(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/frames"
    with materialize_dataset(spark, url, Frames, row_group_size_mb=1):
        rows = [dict_to_spark_row(Frames, row(i)) for i in range(10)]
        spark.createDataFrame(rows, Frames.as_spark_schema()).coalesce(1).write.parquet(url)

    dataset = ParquetDataset(tmp_path / "frames")

    read = dataset[4]
    image, words, numbers = read.pop("image"), read.pop("words"), read.pop("hex")
    assert read == {
        "id": 4,
        "small": 4,
        "half": 2.0,
        "speed": np.float32(0.4),
        "text": b"text 4",
        "time": np.datetime64("2024-01-01T00:00:00.000004"),
        "price": Decimal(4),
    }
    assert (image.tolist(), words.tolist(), numbers.tolist()) == (np.full((4, 5, 3), 4).tolist(), ["a", "bcd"], [4, 2])
    assert (dataset[3]["small"], get_schema(tmp_path / "frames")) == (None, Frames)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", 1.5),
        ("small", 256),
        ("speed", 1e300),
        ("text", b"a"),
        ("image", None),
        ("more", 1),
    ],
)
def test_values_that_would_change_are_refused(name: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=name):
        dict_to_spark_row(Frames, {**row(1), name: value})
