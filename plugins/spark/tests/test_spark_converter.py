"""DataFrames as Parquet: written once, and deleted exactly."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from data_stack_spark.columns import convert_precision
from data_stack_spark.converter import make_spark_converter, register_delete_dir_handler
from data_stack_spark.urls import local_path, readable_source
from data_stack_spark.written_frames import ParquetFolder, WrittenFrames
from process_harness import run_python, start_python
from pyspark.ml.linalg import Vectors
from pyspark.mllib.linalg import Vectors as OldVectors
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from data_stack.exception import ConfigError, ResourceNotFoundError, StorageError


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def numbers(spark: SparkSession, n: int = 100) -> DataFrame:
    """``id``, ``half`` (double) and ``pair`` (array of doubles) of ``n`` rows."""
    return spark.range(0, n, 1, 1).selectExpr(
        "id", "id / 2D as half", "array(id * 1D, id + 0.1D) as pair"
    )


def folders(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.is_dir())


# ------------------------------------------------------------------ columns


def test_numbers_become_float32_and_vectors_become_arrays(spark: SparkSession, cache: Path) -> None:
    rows = [
        (
            2.0,
            1e300,
            [0.1, -1e39],
            Vectors.dense([1, 0.1]),
            Vectors.sparse(3, {1: 4.0}),
            OldVectors.dense([5.0]),
        ),
        (1.5, None, None, Vectors.dense([2, 3]), Vectors.sparse(3, {}), OldVectors.dense([6.0])),
    ]
    frame = spark.createDataFrame(rows, ["single", "a", "b", "dense", "sparse", "old"]).coalesce(1)
    frame = frame.withColumn("single", frame["single"].cast("float"))

    converter = make_spark_converter(frame, cache_dir=cache, dtype="float32")

    first, second = sorted(converter.dataset(), key=lambda sample: -sample["single"])
    assert {np.asarray(value).dtype for value in first.values()} == {np.dtype(np.float32)}
    assert (first["a"], second["a"], second["b"]) == (np.inf, None, None)
    assert [first[name].tolist() for name in ("b", "dense", "sparse", "old")] == [
        [np.float32(0.1), -np.inf],
        [1, np.float32(0.1)],
        [0, 4, 0],
        [5],
    ]
    converter.delete()


def test_precision_is_converted_inside_of_all_types() -> None:
    def nested(number: DataType) -> DataType:
        field = StructField("x", ArrayType(number, containsNull=False), False, {"unit": "m"})
        return StructType([field, StructField("y", MapType(number, StringType(), False))])

    doubles = nested(DoubleType())
    floats = nested(FloatType())

    assert convert_precision(doubles, "float32") == floats
    assert convert_precision(floats, "float64") == doubles
    assert convert_precision(doubles, None) == doubles
    assert convert_precision(LongType(), "float32") == LongType()


# ------------------------------------------------------------------ once


def test_same_rows_with_same_options_are_written_once(spark: SparkSession, cache: Path) -> None:
    frame = numbers(spark, 20_000)
    converter = make_spark_converter(numbers(spark), cache_dir=cache)
    other = make_spark_converter(frame, 100_000, "zstd", cache_dir=cache)
    renamed = make_spark_converter(
        frame.withColumnRenamed("half", "whole"), 100_000, "zstd", cache_dir=cache
    )

    assert make_spark_converter(numbers(spark), cache_dir=cache) == converter
    assert make_spark_converter(numbers(spark, 20_000), 100_000, "zstd", cache_dir=cache) == other
    assert folders(cache) == sorted(
        written.cache_dir_url.rpartition("/")[2] for written in (converter, other, renamed)
    )
    footer = pq.read_metadata(other.file_urls[0][len("file://") :])
    assert footer.num_row_groups > 2
    assert footer.row_group(0).column(0).compression == "ZSTD"


def test_files_that_have_changed_are_other_rows(
    spark: SparkSession, cache: Path, tmp_path: Path
) -> None:
    source = str(tmp_path / "source")
    spark.range(0, 5, 1, 1).write.parquet(source)
    before = make_spark_converter(spark.read.parquet(source), cache_dir=cache)

    spark.range(0, 7, 1, 1).write.mode("overwrite").parquet(source)
    after = make_spark_converter(spark.read.parquet(source), cache_dir=cache)

    assert (len(before), len(after)) == (5, 7)


# ------------------------------------------------------------------ where, and how long


def test_delete_removes_what_was_written_and_nothing_else(spark: SparkSession, cache: Path) -> None:
    cache.mkdir()
    (cache / "mine.txt").write_text("mine")
    converter = make_spark_converter(numbers(spark), cache_dir=cache)
    urls: list[str] = []

    register_delete_dir_handler(urls.append)
    try:
        converter.delete()
    finally:
        register_delete_dir_handler(None)
    n_left = len(folders(cache))
    converter.delete()

    assert (urls, n_left) == ([converter.cache_dir_url], 1)
    assert [path.name for path in cache.iterdir()] == ["mine.txt"]
    with pytest.raises(ResourceNotFoundError):
        converter.dataset()
    with pytest.raises(ConfigError):
        replace(converter, cache_dir_url=cache.as_uri()).delete()


def test_another_process_uses_and_deletes_a_converter_without_spark(
    spark: SparkSession, cache: Path, tmp_path: Path
) -> None:
    converter = make_spark_converter(numbers(spark), cache_dir=cache)
    (tmp_path / "converter").write_bytes(pickle.dumps(converter))
    program = (
        "import pathlib, pickle, sys\n"
        "converter = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "print(len(converter), sum(int(sample['id']) for sample in converter.dataset()))\n"
        "converter.delete()\n"
    )

    said, _ = run_python("-c", program, tmp_path / "converter")

    assert said == "100 4950\n"
    assert folders(cache) == []
    assert len(make_spark_converter(numbers(spark), cache_dir=cache).dataset()) == 100


def test_folders_of_this_process_are_deleted_at_its_end(spark: SparkSession, cache: Path) -> None:
    frames = WrittenFrames()
    rows = spark.range(3)
    frames.find_or_write(rows, str(cache), "options", rows.write.parquet)
    n_written = len(folders(cache))

    frames.delete_all()

    assert (n_written, folders(cache)) == (1, [])


def test_a_path_is_used_as_it_is_and_stays(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "mine"
    spark.range(0, 9, 1, 1).selectExpr("id", "id % 2 as part").write.partitionBy("part").parquet(
        str(path)
    )

    converter = make_spark_converter(str(path))
    converter.delete()

    assert len(converter) == 9
    assert sorted(sample["part"] for sample in converter.dataset()) == [0] * 5 + [1] * 4
    with pytest.raises(ConfigError):
        make_spark_converter(str(path), dtype="float32")


def test_a_job_that_fails_leaves_nothing(spark: SparkSession, cache: Path) -> None:
    broken = spark.range(10).selectExpr("id", "cast(raise_error('broken') as int) as x")

    with pytest.raises(StorageError, match="broken"):
        make_spark_converter(broken, cache_dir=cache)

    assert list(cache.iterdir()) == []


# ---------------------------------------------------------------------- what Spark needs; the page


def test_without_java_it_is_said_what_to_install() -> None:
    program = "from data_stack_spark.session import spark_session; spark_session()"

    with start_python(
        "-W", "ignore", "-c", program, PATH="/nowhere", JAVA_HOME="/nowhere"
    ) as process:
        _, errors = process.communicate(timeout=120)

    assert re.search("ConfigError: .*Java 17 .*/nowhere", errors.splitlines()[-1]), errors


def test_urls_of_spark_are_read_without_it() -> None:
    assert readable_source("file:///data/a%20b/") == "/data/a b"
    assert readable_source("s3a://bucket/set") == "s3a://bucket/set"  # which stores take
    assert readable_source("hdfs://host/set") == "hdfs://host/set"
    assert local_path("abfss://container@account/set") is None
    assert local_path("sets/one") == str(Path("sets/one").absolute())


def test_urls_of_files_are_encoded_as_their_folder_is() -> None:
    files = ("time=10%3A00/a b.parquet",)

    assert ParquetFolder("file:///x", files, 1).file_urls == (
        "file:///x/time=10%253A00/a%20b.parquet",
    )
    assert ParquetFolder("s3://b/x", files, 1).file_urls == ("s3://b/x/time=10%3A00/a b.parquet",)


def test_partitions_are_read_by_the_urls_of_files(spark: SparkSession, tmp_path: Path) -> None:
    times = spark.createDataFrame([("10:00", 1), ("11:00", 2)], ["time", "value"])
    times.write.partitionBy("time").parquet(str(tmp_path / "times"))

    converter = make_spark_converter(str(tmp_path / "times"))

    paths = [local_path(url) for url in converter.file_urls]
    assert len(paths) == 2
    assert all(path is not None and Path(path).is_file() for path in paths)


def test_the_code_of_the_page_runs(spark: SparkSession, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")
    frame = spark.range(20).selectExpr("id", "array(id * 1D) as features", "id % 2 as label")
    names = {
        "spark": spark,
        "url": str(tmp_path / "frames"),
        "cache_url": (tmp_path / "cache").as_uri(),
        "df": frame,
    }
    code = re.findall(r"```python\n(.*?)```", page, flags=re.S)

    for block in code:
        exec(block, names)

    assert len(code) == 3
    assert [path for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []
