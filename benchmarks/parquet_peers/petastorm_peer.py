"""Petastorm 0.13.1 on the cases of benchmarks/parquet.py; runs in an environment of its own, see
benchmarks/README.md.

``petastorm_peer.py write FOLDER`` writes the datasets with Petastorm and Spark; ``petastorm_peer.py
measure CASE FOLDER WORKERS`` prints JSON: the fastest of up to three epochs, each with a reader of
its own, and how the first one began.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

import numpy as np  # noqa: E402

N_MNIST, N_PLAIN, N_FRAMES, N_CONVERTED = 60_000, 200_000, 20_000, 1_000_000
FRAME_SHAPE = (16, 64)


def spark_session():
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
    )
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.driver.host", "127.0.0.1").getOrCreate()


def write(folder: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from petastorm.codecs import CompressedImageCodec, NdarrayCodec, ScalarCodec
    from petastorm.etl.dataset_metadata import materialize_dataset
    from petastorm.unischema import Unischema, UnischemaField, dict_to_spark_row
    from pyspark.sql.types import IntegerType, LongType

    spark = spark_session()
    spark.sparkContext.setLogLevel("ERROR")

    mnist = Unischema("Mnist", [
        UnischemaField("idx", np.int64, (), ScalarCodec(LongType()), False),
        UnischemaField("digit", np.int64, (), ScalarCodec(LongType()), False),
        UnischemaField("image", np.uint8, (28, 28), CompressedImageCodec("png"), False),
    ])  # fmt: skip

    def digit(i):
        x = np.random.default_rng(i)
        image = np.zeros((28, 28), np.uint8)
        row, column = x.integers(4, 10, 2)
        image[row : row + 14, column : column + 9] = (x.random((14, 9)) > 0.45) * x.integers(
            80, 255, (14, 9)
        )
        return {"idx": i, "digit": i % 10, "image": image}

    frames = Unischema("Frames", [
        UnischemaField("timestamp", np.int64, (), ScalarCodec(LongType()), False),
        UnischemaField("sensor", np.int32, (), ScalarCodec(IntegerType()), False),
        UnischemaField("frame", np.float32, FRAME_SHAPE, NdarrayCodec(), False),
    ])  # fmt: skip

    def frame(i):
        return {
            "timestamp": i,
            "sensor": i % 100,
            "frame": np.random.default_rng(i).random(FRAME_SHAPE, dtype=np.float32),
        }

    for name, schema, make, n_rows, megabytes in (
        ("mnist", mnist, digit, N_MNIST, 1),
        ("frames", frames, frame, N_FRAMES, 8),
    ):
        url = f"file://{folder}/{name}"
        with materialize_dataset(spark, url, schema, row_group_size_mb=megabytes):
            rows = (
                spark.sparkContext.parallelize(range(n_rows), 4)
                .map(make)
                .map(lambda x, s=schema: dict_to_spark_row(s, x))
            )
            spark.createDataFrame(rows, schema.as_spark_schema()).write.mode("overwrite").parquet(
                url
            )
    spark.stop()

    x = np.random.default_rng(0)
    os.makedirs(f"{folder}/plain", exist_ok=True)
    for part in range(2):
        n = N_PLAIN // 2
        table = pa.table({
            "id": np.arange(part * n, (part + 1) * n),
            "speed": x.random(n, dtype=np.float32),
            "position": x.random(n),
            "label": [f"class-{i % 17}" for i in range(n)],
            "vec": pa.array(list(x.random((n, 16), dtype=np.float32))),
        })  # fmt: skip
        pq.write_table(table, f"{folder}/plain/part-{part}.parquet", row_group_size=10_000)


def epoch(loader, count) -> dict:
    started = time.perf_counter()
    first, n_rows = None, 0
    for batch in loader:
        if first is None:
            first = time.perf_counter() - started
        n_rows += count(batch)
    return {
        "rows": n_rows,
        "seconds": time.perf_counter() - started,
        "first": first,
        "began": started,
    }


def measure(case: str, folder: str, workers: int) -> dict:
    from petastorm import make_batch_reader, make_reader
    from petastorm.ngram import NGram
    from petastorm.predicates import in_lambda
    from petastorm.pytorch import BatchedDataLoader, DataLoader

    pool = case.rpartition("_")[2]  # of cases such as "mnist_rows_process"
    pool = pool if pool in ("dummy", "process") else "thread"
    options = {"reader_pool_type": pool, "workers_count": workers, "num_epochs": 1}
    started = time.perf_counter()
    if case == "plain":
        columns = ["id", "speed", "position", "vec"]
        with make_batch_reader(
            f"file://{folder}/plain", schema_fields=columns, **options
        ) as reader:
            found = epoch(BatchedDataLoader(reader, 256), lambda batch: len(batch["id"]))
    elif case in ("mnist", "mnist_batched"):
        with make_reader(f"file://{folder}/mnist", **options) as reader:
            loader = DataLoader(reader, 64) if case == "mnist" else BatchedDataLoader(reader, 256)
            found = epoch(loader, lambda batch: len(batch["idx"]))
    elif case == "frames" or case.startswith("mnist_rows"):
        with make_reader(f"file://{folder}/{case.partition('_')[0]}", **options) as reader:
            found = epoch(reader, lambda row: 1)
    elif case == "ngram":
        ngram = NGram(
            {0: ["timestamp", "frame"], 1: ["timestamp", "frame"], 2: ["timestamp", "frame"]},
            1,
            "timestamp",
        )
        with make_reader(f"file://{folder}/frames", schema_fields=ngram, **options) as reader:
            found = epoch(reader, lambda row: 1)
    elif case in ("predicate_scattered", "predicate_range"):
        scattered = in_lambda(["sensor"], lambda sensor: sensor == 7)
        near = in_lambda(["timestamp"], lambda timestamp: 10_000 <= timestamp <= 10_199)
        chosen = near if case == "predicate_range" else scattered
        with make_reader(f"file://{folder}/frames", predicate=chosen, **options) as reader:
            found = epoch(reader, lambda row: 1)
    elif case == "converter":
        from petastorm.spark import SparkDatasetConverter, make_spark_converter

        spark = spark_session()
        spark.sparkContext.setLogLevel("ERROR")
        spark.conf.set(
            SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, f"file://{folder}/converter"
        )
        frame = spark.range(N_CONVERTED).selectExpr(
            "id", "cast(id % 10 as double) as a", "cast(id as float) / 7 as b", "id % 3 as label"
        )
        spark.range(10).count()  # the first job pays for starting executors
        started = time.perf_counter()
        converter = make_spark_converter(frame)
        with converter.make_torch_dataloader(
            batch_size=256, num_epochs=1, workers_count=workers
        ) as loader:
            found = epoch(loader, lambda batch: len(batch["id"]))
        found["seconds"] = time.perf_counter() - started
        converter.delete()
        spark.stop()
    else:
        raise SystemExit(f"no case {case}")
    opening = found.pop("began") - started
    first = found.pop("first")  # None: this epoch lost all of its rows
    found["seconds_to_first"] = None if first is None else opening + first
    if case.startswith("predicate"):  # much of the work is done when it is opened
        found["seconds"] += opening
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def repeated(case: str, folder: str, workers: int) -> dict:
    runs = []
    while len(runs) < (1 if case == "converter" else 3) and sum(run["seconds"] for run in runs) < 4:
        runs.append(measure(case, folder, workers))
    best = max(runs, key=lambda run: run["rows"] / run["seconds"])
    first, last = runs[0]["seconds_to_first"], runs[-1]["peak_mib"]
    # epochs of Petastorm may lose rows
    return {
        **best,
        "seconds_to_first": first,
        "peak_mib": last,
        "rows_of_each_epoch": [run["rows"] for run in runs],
    }


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        print(json.dumps(repeated(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
