"""DataFrames as batches: written once, read by the loader, deleted exactly."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from data_stack_petastorm import BatchedDataLoader
from data_stack_spark.cache import delete_at_exit
from data_stack_spark.converter import make_spark_converter, register_delete_dir_handler

from data_stack.exception import ConfigError, ResourceNotFoundError, StorageError
from data_stack.io.storage_connectors.owners import this_process

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def _no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "HOROVOD_RANK", "HOROVOD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def numbers(spark: SparkSession, n: int = 100) -> DataFrame:
    """``id``, ``half`` (double) and ``pair`` (array of doubles) of ``n`` rows."""
    return spark.range(n).selectExpr("id", "id / 2D as half", "array(id * 1D, id + 0.1D) as pair")


def folders(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.is_dir())


def ids(batches: Any) -> list[int]:
    return [number for batch in batches for number in batch["id"].tolist()]


# ------------------------------------------------------------------ batches


def test_a_dataframe_becomes_batches_of_tensors(spark: SparkSession, cache: Path) -> None:
    converter = make_spark_converter(numbers(spark), cache_dir=cache)

    with converter.make_torch_dataloader(batch_size=30, shuffle_row_groups=False) as loader:
        batches = list(loader)

    assert (len(converter), len(loader), [len(batch["id"]) for batch in batches]) == (100, 4, [30, 30, 30, 10])
    assert ids(batches) == list(range(100))
    assert batches[0]["half"].dtype == torch.float64
    assert batches[1]["pair"].tolist() == [[i, i + 0.1] for i in range(30, 60)]
    converter.delete()


def test_rows_are_mixed_in_an_order_that_the_seed_decides(spark: SparkSession, cache: Path) -> None:
    converter = make_spark_converter(numbers(spark), cache_dir=cache)

    def order(**options: Any) -> list[int]:
        with converter.make_torch_dataloader(batch_size=16, **options) as loader:
            return ids(loader)

    mixed = order(shuffling_queue_capacity=100, seed=0)
    assert sorted(mixed) == list(range(100))
    assert mixed == order(shuffling_queue_capacity=100, seed=0, workers_count=2, reader_pool_type="thread")
    assert mixed != order(shuffling_queue_capacity=100, seed=1)
    assert len(set(itertools.pairwise(mixed)) & {(i, i + 1) for i in range(99)}) < 20
    converter.delete()


def test_epochs_shards_columns_and_filters_are_those_that_are_asked_for(spark: SparkSession, cache: Path) -> None:
    converter = make_spark_converter(numbers(spark), cache_dir=cache)

    shards = []
    for rank in range(3):
        with converter.make_torch_dataloader(batch_size=7, cur_shard=rank, shard_count=3, uneven="keep") as loader:
            shards.append(ids(loader))
    options: dict[str, Any] = {"num_epochs": 2, "schema_fields": ["id"], "filters": [("id", ">=", 90)]}
    with converter.make_torch_dataloader(batch_size=7, **options) as loader:
        batches = list(loader)
    with converter.make_torch_dataloader(num_epochs=None) as endless:
        first = [number for _, batch in zip(range(5), endless, strict=False) for number in batch["id"].tolist()]

    assert sorted(number for shard in shards for number in shard) == list(range(100))
    assert [set(batch) for batch in batches] == [{"id"}] * len(batches)
    assert sorted(ids(batches)) == sorted([*range(90, 100)] * 2)
    assert len(first) > 100
    converter.delete()


def test_a_loader_of_ones_own_gets_a_reader(spark: SparkSession, cache: Path) -> None:
    converter = make_spark_converter(numbers(spark), cache_dir=cache)

    with converter.make_torch_dataloader(batch_size=25, num_epochs=1, data_loader_fn=BatchedDataLoader) as loader:
        found = ids(loader)

    assert sorted(found) == list(range(100))
    converter.delete()


def test_one_of_several_processes_is_warned_that_it_reads_everything(
    spark: SparkSession, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    converter = make_spark_converter(numbers(spark), cache_dir=cache)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")

    with caplog.at_level(logging.WARNING, "data_stack"):
        converter.make_torch_dataloader(cur_shard=1, shard_count=4)
        is_silent = not caplog.records
        converter.make_torch_dataloader()

    assert is_silent
    assert "cur_shard=1, shard_count=4" in caplog.text
    converter.delete()


def test_a_converter_is_used_by_another_process_without_spark(spark: SparkSession, cache: Path) -> None:
    converter = make_spark_converter(numbers(spark), cache_dir=cache)
    program = (
        "import pickle, sys\n"
        "converter = pickle.load(sys.stdin.buffer)\n"
        "with converter.make_torch_dataloader(batch_size=40) as loader:\n"
        "    print(len(converter), sum(int(batch['id'].sum()) for batch in loader))\n"
        "converter.delete()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(converter), capture_output=True, env=environment)

    assert done.stdout.split() == [b"100", b"4950"], done.stderr.decode()[-2000:]
    assert folders(cache) == []


# ------------------------------------------------------------------ columns


def test_precision_is_lost_only_when_that_is_asked_for_and_then_told(
    spark: SparkSession, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frame = spark.createDataFrame([(1e300, [0.1, -1e39], 2.0), (None, None, 1.5)], "a double, b array<double>, c float")

    with caplog.at_level(logging.INFO, "data_stack"):
        exact = make_spark_converter(frame, cache_dir=cache)
        is_silent = "float32" not in caplog.text
        single = make_spark_converter(frame, cache_dir=cache, dtype="float32")
        double = make_spark_converter(frame, cache_dir=cache, dtype="float64")

    types = [
        [field.type for field in pq.read_schema(converter.file_urls[0][len("file://") :])]
        for converter in (exact, single, double)
    ]
    assert [[str(each) for each in row] for row in types] == [
        ["double", "list<element: double>", "float"],
        ["float", "list<element: float>", "float"],
        ["double", "list<element: double>", "double"],
    ]
    assert is_silent
    assert "float64 → float32: a, b keep 24 of 53 bits" in caplog.text
    samples = sorted(single.dataset(), key=lambda sample: sample["c"])
    assert samples[0]["a"] is None
    assert samples[1]["a"] == np.inf
    for converter in (exact, single, double):
        converter.delete()


def test_vectors_become_arrays(spark: SparkSession, cache: Path) -> None:
    from pyspark.ml.linalg import Vectors
    from pyspark.mllib.linalg import Vectors as OldVectors

    rows = [(i, Vectors.dense([i, 0.1]), Vectors.sparse(3, {1: float(i)}), OldVectors.dense([float(i)])) for i in range(4)]
    frame = spark.createDataFrame(rows, ["id", "dense", "sparse", "old"])

    converter = make_spark_converter(frame, cache_dir=cache, dtype="float32")
    with converter.make_torch_dataloader(batch_size=4, shuffle_row_groups=False) as loader:
        (batch,) = loader

    assert batch["dense"].dtype == torch.float32
    assert batch["dense"].tolist() == [[i, float(np.float32(0.1))] for i in range(4)]
    assert batch["sparse"].tolist() == [[0.0, i, 0.0] for i in range(4)]
    assert batch["old"].tolist() == [[i] for i in range(4)]
    converter.delete()


def test_row_group_size_and_compression_are_those_that_are_asked_for(spark: SparkSession, cache: Path) -> None:
    frame = spark.range(0, 40_000, 1, 1).selectExpr("id", "rand(1) as a", "rand(2) as b")

    converter = make_spark_converter(frame, 200_000, "zstd", cache_dir=cache)

    footer = pq.read_metadata(converter.file_urls[0][len("file://") :])
    assert footer.num_row_groups > 2
    assert footer.row_group(0).column(0).compression == "ZSTD"
    converter.delete()


# ------------------------------------------------------------------ once


def test_the_same_plan_is_written_once(spark: SparkSession, cache: Path) -> None:
    first = make_spark_converter(numbers(spark), cache_dir=cache)

    assert make_spark_converter(numbers(spark), cache_dir=cache) == first
    assert make_spark_converter(numbers(spark, 101), cache_dir=cache) != first
    assert make_spark_converter(numbers(spark), 1 << 20, cache_dir=cache) != first
    assert make_spark_converter(numbers(spark), compression_codec="gzip", cache_dir=cache) != first
    assert make_spark_converter(numbers(spark).withColumnRenamed("half", "whole"), cache_dir=cache) != first
    assert len(folders(cache)) == 5


def test_files_that_have_changed_are_other_rows(spark: SparkSession, cache: Path, tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    spark.range(5).write.parquet(source)
    before = make_spark_converter(spark.read.parquet(source), cache_dir=cache)
    again = make_spark_converter(spark.read.parquet(source), cache_dir=cache)

    spark.range(7).write.mode("overwrite").parquet(source)
    after = make_spark_converter(spark.read.parquet(source), cache_dir=cache)

    assert before == again
    assert (len(before), len(after)) == (5, 7)


def test_the_folder_is_named_by_the_session_if_it_is_not_given(spark: SparkSession, tmp_path: Path) -> None:
    found = []
    for name in ("petastorm.spark.converter.parentCacheDirUrl", "data_stack.spark.converter.cacheDir"):
        spark.conf.set(name, (tmp_path / name).as_uri())
        converter = make_spark_converter(spark.range(3))
        found.append(converter.cache_dir_url.startswith((tmp_path / name).as_uri()))
        converter.delete()
    for name in ("petastorm.spark.converter.parentCacheDirUrl", "data_stack.spark.converter.cacheDir"):
        spark.conf.unset(name)

    assert found == [True, True]


# ------------------------------------------------------------------ deleted


def test_delete_removes_what_was_written_and_nothing_else(spark: SparkSession, cache: Path) -> None:
    cache.mkdir()
    (cache / "mine.txt").write_text("mine")
    converter = make_spark_converter(numbers(spark), cache_dir=cache)

    converter.delete()

    assert [path.name for path in cache.iterdir()] == ["mine.txt"]
    with pytest.raises(ResourceNotFoundError):
        converter.make_torch_dataloader()
    again = make_spark_converter(numbers(spark), cache_dir=cache)
    assert ids(again.make_torch_dataloader(shuffle_row_groups=False).__enter__()) == list(range(100))
    with pytest.raises(ConfigError, match="not written by a converter"):
        replace(again, cache_dir_url=cache.as_uri()).delete()


def test_what_a_killed_process_left_is_deleted_by_the_next_converter(spark: SparkSession, cache: Path) -> None:
    machine, pid, started = this_process().split("-")
    owners = {
        "dead": f"{machine}-{pid}-{int(started) + 1}",
        "alive": this_process(),
        "elsewhere": f"{'0' * 12}-1-1",
        "kept": "kept",
    }
    names = {which: f"data-stack-converter-{owner}-{'a' * 12}" for which, owner in owners.items()}
    for name in names.values():
        (cache / name).mkdir(parents=True)

    converter = make_spark_converter(numbers(spark), cache_dir=cache)

    written = converter.cache_dir_url.rpartition("/")[2]
    assert folders(cache) == sorted({written, *names.values()} - {names["dead"]})


def test_what_is_not_kept_goes_with_the_process_that_wrote_it(spark: SparkSession, cache: Path) -> None:
    make_spark_converter(numbers(spark), cache_dir=cache)
    kept = make_spark_converter(numbers(spark), cache_dir=cache, delete_at_exit=False)

    delete_at_exit()

    assert folders(cache) == [kept.cache_dir_url.rpartition("/")[2]]


def test_a_path_is_used_as_it_is_and_stays(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "mine"
    spark.range(9).selectExpr("id", "id % 2 as part").write.partitionBy("part").parquet(str(path))

    converter = make_spark_converter(str(path))
    converter.delete()

    assert len(converter) == 9
    assert sorted(sample["part"] for sample in converter.dataset()) == [0] * 5 + [1] * 4
    with pytest.raises(ConfigError, match="as it is"):
        make_spark_converter(str(path), dtype="float32")


def test_a_handler_deletes_in_the_place_of_the_default(spark: SparkSession, cache: Path) -> None:
    urls: list[str] = []
    converter = make_spark_converter(numbers(spark), cache_dir=cache)
    register_delete_dir_handler(urls.append)
    try:
        converter.delete()
    finally:
        register_delete_dir_handler(None)

    assert urls == [converter.cache_dir_url]
    assert len(folders(cache)) == 1


def test_a_job_that_fails_leaves_nothing(spark: SparkSession, cache: Path) -> None:
    broken = spark.range(10).selectExpr("id", "cast(raise_error('broken') as int) as x")

    with pytest.raises(StorageError, match="broken"):
        make_spark_converter(broken, cache_dir=cache)

    assert list(cache.iterdir()) == []
    assert len(make_spark_converter(spark.range(4), cache_dir=cache)) == 4


def test_folders_of_any_file_system_of_spark_hold_what_is_converted(spark: SparkSession, tmp_path: Path) -> None:
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.caches.link./cache", tmp_path.as_uri())
    url = "viewfs://caches/cache"

    first = make_spark_converter(numbers(spark), cache_dir=url)
    again = make_spark_converter(numbers(spark), cache_dir=url)

    assert first == again
    assert len(first) == 100
    assert folders(tmp_path) == [first.cache_dir_url.rpartition("/")[2]]
    first.delete()
    assert [path for path in tmp_path.iterdir() if not path.name.endswith(".crc")] == []
