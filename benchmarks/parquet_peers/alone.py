"""Ours and the limits, one of them in a process of its own; benchmarks/parquet.py starts it, and
prints what it answers.

Run, in benchmarks/: python -m parquet_peers.alone CASE WAY --folder FOLDER
"""

from __future__ import annotations

import argparse
import gc
import io
import itertools
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
from data_stack_petastorm import NGram, make_batch_reader, make_reader
from data_stack_petastorm.ngram_iterator import NGramIterator
from loader_peers.memory import proportional_bytes

from data_stack.formats.parquet.codecs import NdarrayCodec, PngCodec
from data_stack.formats.parquet.dataset import ParquetDataset
from data_stack.formats.parquet.metadata_generation import generate_metadata
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.parquet.selecting import col
from data_stack.formats.parquet.writer import ParquetWriter
from data_stack.loader import BlockShuffled, Loader

BATCH = 256
PLAIN_COLUMNS = ["id", "speed", "position", "vec"]
#: Rows of a row group of ``plain``.
PLAIN_GROUP = 10_000
#: Row groups that the loader mixes where that is not what is measured.
WINDOW = 4
N_CONVERTED = 1_000_000
#: By case the column whose sum tells whether all rows came.
KEYS = {"plain": "id", "mnist": "idx", "frames": "timestamp", "ngram": "timestamp"}
_EPOCH_SECONDS = 4.0
_LARGE_SHAPE = (64, 256)

#: What an epoch answers: rows, the sum of their keys, seconds from its beginning to the first of
#: them, and to the last.
Epoch = tuple[int, int, float, float]


# ---------------------------------------------------------------------- epochs of ours


def counted(batches: Any, key: Callable[[Any], Any]) -> Epoch:
    """Go through batches (of tensors, arrays), or through single rows, whose keys are numbers."""
    start = time.perf_counter()
    first, n_rows, total = 0.0, 0, 0
    for batch in batches:
        if not n_rows:
            first = time.perf_counter() - start
        keys = key(batch)
        if hasattr(keys, "shape") and keys.shape:
            n_rows += len(keys)
            total += int(keys.sum())
        else:
            n_rows += 1
            total += int(keys)
    return n_rows, total, first, time.perf_counter() - start


def loader_of(stack: Any, window: int | None, kind: Any, workers: int | None = None) -> Loader:
    """Batches of 256, shuffled block-wise."""
    return Loader(
        stack,
        BATCH,
        shuffle=False if window is None else BlockShuffled(window=window),
        seed=1,
        worker_kind=kind,
        workers=workers,
    )


def epoch_of(case: str, way: str, folder: Path) -> Epoch:
    """One epoch of ours, opening not timed; ``way`` is such as "loader, threads, window 4" or
    "make_reader".
    """
    name, *rest = way.split(", ")
    window = next(
        (int(each.removeprefix("window ")) for each in rest if each.startswith("window ")), WINDOW
    )
    kind = next(
        (each for each in rest if each in ("auto", "inline", "threads", "processes")), "auto"
    )
    key = KEYS[case]
    path = folder / ("frames" if case == "ngram" else case)
    columns = PLAIN_COLUMNS if case == "plain" else None
    offsets = {offset: ["timestamp", "frame"] for offset in range(3)}
    ngram = NGram(offsets, 1, "timestamp", within_row_groups=False) if case == "ngram" else None
    if name == "loader":
        stack: Any = ParquetDataset(path, columns)
        if ngram is not None:
            stack = NGramIterator(stack, ngram)
        loader: Any = loader_of(stack, window, kind)
        if ngram is not None:
            return counted(loader, lambda batch: batch[0][key])
        return counted(loader.torch() if "torch" in rest else loader, lambda batch: batch[key])
    if name == "make_batch_reader":
        with make_batch_reader(path.as_uri(), schema_fields=columns, seed=1) as batches:
            return counted(batches, lambda batch: getattr(batch, key))
    pool = {"inline": "dummy", "processes": "process"}.get(kind, "thread")
    options: dict[str, Any] = {"reader_pool_type": pool} | (
        {"workers_count": 2} if pool == "process" else {}
    )
    with make_reader(path.as_uri(), schema_fields=ngram or columns, seed=1, **options) as reader:
        if name == "DataLoader":
            from data_stack_petastorm import DataLoader

            return counted(DataLoader(reader, 64), lambda batch: batch[key])
        if name == "BatchedDataLoader":
            from data_stack_petastorm import BatchedDataLoader

            return counted(BatchedDataLoader(reader, BATCH), lambda batch: batch[key])
        return counted(reader, lambda row: getattr(row[0] if ngram else row, key))


def repeated(case: str, epoch: Callable[[], Epoch]) -> dict[str, Any]:
    """Up to three epochs, each of a dataset opened anew: the time of the middle one, and how the
    first one began.

    Raises:
        ValueError: an epoch lacks rows, or has some twice.
    """
    seconds, to_first, n_rows = [], 0.0, 0
    while len(seconds) < 3 and sum(seconds) < _EPOCH_SECONDS:
        n_found, total, first, its_seconds = epoch()
        seconds.append(its_seconds)
        if len(seconds) == 1:
            to_first, n_rows = first, n_found
        if n_found != n_rows or total != n_rows * (n_rows - 1) // 2:
            raise ValueError(
                f"{case}: an epoch of {n_found:,} rows, whose keys are {total:,} together"
            )
        gc.collect()
    return {"rows": n_rows, "seconds": statistics.median(seconds), "seconds_to_first": to_first}


# ---------------------------------------------------------------------- limits


def limit(case: str, way: str, folder: Path) -> dict[str, Any]:
    """Pyarrow alone, reading the columns; OpenCV alone, decoding the cells."""
    files = sorted((folder / case).glob("*.parquet"))
    if way == "cv2, 2 threads":
        import cv2

        cells = [
            cell
            for file in files
            for cell in pq.read_table(file, columns=["image"]).column("image").to_pylist()
        ]

        def decode(some: list[bytes]) -> None:
            for cell in some:
                cv2.imdecode(np.frombuffer(cell, np.uint8), cv2.IMREAD_UNCHANGED)

        seconds = []
        with ThreadPoolExecutor(2) as pool:
            for _ in range(3):
                start = time.perf_counter()
                list(pool.map(decode, (cells[::2], cells[1::2])))
                seconds.append(time.perf_counter() - start)
        return {"rows": len(cells), "seconds": statistics.median(seconds)}
    columns = PLAIN_COLUMNS if case == "plain" else None
    seconds, n_rows = [], 0
    for _ in range(3):
        start, n_rows = time.perf_counter(), 0
        if way == "pyarrow, whole table":
            n_rows = pq.read_table(folder / case, columns=columns).num_rows
        elif way == "pyarrow, to_batches":
            batches = pyarrow.dataset.dataset(folder / case).to_batches(
                columns=columns, batch_size=BATCH
            )
            n_rows = sum(map(len, batches))
        else:
            for file in files:
                reader = pq.ParquetFile(file)
                for group in range(reader.num_row_groups):
                    n_rows += reader.read_row_group(group, columns=columns).num_rows
        seconds.append(time.perf_counter() - start)
    return {"rows": n_rows, "seconds": statistics.median(seconds)}


# ---------------------------------------------------------------------- the first row


def first_row(way: str, folder: Path) -> dict[str, Any]:
    """Seconds from opening a dataset to its first row or batch; everything that is imported is
    imported before.
    """
    case, _, name = way.partition(", ")
    path = folder / case
    columns = PLAIN_COLUMNS if case == "plain" else None
    if name.startswith("loader, torch"):
        import torch  # noqa: F401  # imported beforehand, as everything is
    if case == "mnist":
        import cv2  # noqa: F401  # likewise
    start = time.perf_counter()
    if name.startswith("loader"):
        loader: Any = loader_of(ParquetDataset(path, columns), WINDOW, "auto")
        batches = iter(loader.torch() if "torch" in name else loader)
        next(batches)
        seconds = time.perf_counter() - start
        loader.close()
        return {"rows": BATCH, "seconds_to_first": seconds}
    make = make_batch_reader if name == "make_batch_reader" else make_reader
    with make(path.as_uri(), schema_fields=columns) as reader:
        next(reader)
        seconds = time.perf_counter() - start
    return {"rows": 1, "seconds_to_first": seconds}


# ---------------------------------------------------------------------- a predicate


def files(way: str) -> dict[str, Any]:
    """The time to open 10,000 files of ten rows, and to read one row."""
    content = io.BytesIO()
    pq.write_table(pa.table({"a": np.arange(10), "b": np.linspace(0, 1, 10)}), content)
    seconds = []
    with tempfile.TemporaryDirectory(prefix="data_stack-benchmark-files-") as folder:
        for number in range(10_000):
            (Path(folder) / f"{number:05d}.parquet").write_bytes(content.getvalue())
        if way == "with a manifest":
            generate_metadata(folder)
        for _ in range(4):
            start = time.perf_counter()
            ParquetDataset(folder)[55_555]
            seconds.append(time.perf_counter() - start)
    return {"rows": 1, "seconds_to_first": statistics.median(seconds[1:])}


def predicate(way: str, folder: Path) -> dict[str, Any]:
    """The rows that a filter leaves of ``frames``: seconds, and how much of the files is read for
    them.
    """
    times = col("timestamp")
    expression = (
        col("sensor") == 7 if way.startswith("scattered") else (times >= 10_000) & (times <= 10_199)
    )
    named = "sensor" if way.startswith("scattered") else "timestamp"
    seconds, figures = [], {}
    for _ in range(3):
        before, start = _bytes_read(), time.perf_counter()
        if way.endswith("make_reader"):
            with make_reader((folder / "frames").as_uri(), predicate=expression) as reader:
                n_rows = sum(1 for _ in reader)
        else:
            dataset = ParquetDataset(folder / "frames", filters=expression)
            n_rows = sum(len(batch[named]) for batch in loader_of(dataset, WINDOW, "auto"))
        seconds.append(time.perf_counter() - start)
        figures = {"rows": n_rows, "bytes_read": _bytes_read() - before}
        gc.collect()
    n_groups = n_hits = whole = allowed = 0
    for file in sorted((folder / "frames").glob("*.parquet")):
        reader = pq.ParquetFile(file)
        allowed += 2 * reader.metadata.serialized_size + (
            1 << 17
        )  # footers, and what lies between columns
        for number in range(reader.num_row_groups):
            group = reader.metadata.row_group(number)
            sizes = {
                group.column(leaf).path_in_schema: group.column(leaf).total_compressed_size
                for leaf in range(group.num_columns)
            }
            values = reader.read_row_group(number, columns=[named]).column(0).to_numpy()
            is_hit = bool(
                (
                    (values == 7)
                    if named == "sensor"
                    else ((values >= 10_000) & (values <= 10_199))
                ).any()
            )
            # the predicate column of all, the other columns of the row groups that hit
            allowed += sizes[named] + is_hit * (sum(sizes.values()) - sizes[named])
            n_groups, n_hits, whole = n_groups + 1, n_hits + is_hit, whole + sum(sizes.values())
    figures |= {"row_groups": n_groups, "row_groups_that_hit": n_hits, "bytes_of_all": whole}
    return {**figures, "bytes_allowed": allowed, "seconds": statistics.median(seconds)}


def _bytes_read() -> int:
    """What this process has read of files so far (proc_pid_io(5)), out of the page cache or not."""
    return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])


# ---------------------------------------------------------------------- a DataFrame


def converter(folder: Path, way: str) -> dict[str, Any]:
    """A DataFrame of a million rows to batches of torch, the writing included."""
    import warnings

    warnings.filterwarnings("ignore")
    import torch  # noqa: F401  # as Petastorm's adapter does before its clock starts
    from data_stack_spark import make_spark_converter
    from pyspark.sql import SparkSession

    cache = folder / "our_converter"
    shutil.rmtree(cache, ignore_errors=True)
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
    )
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.range(N_CONVERTED).selectExpr(
        "id", "cast(id % 10 as double) as a", "cast(id as float) / 7 as b", "id % 3 as label"
    )
    spark.range(10).count()  # the first job pays for starting executors
    start = time.perf_counter()
    made = make_spark_converter(
        frame, dtype="float32", cache_dir=str(cache)
    )  # Petastorm's default is float32
    converted = time.perf_counter() - start
    pool: dict[str, Any] = (
        {}
        if way == "auto"
        else {"worker_kind": {"thread": "in_process", "process": "processes"}[way]}
    )
    with Loader(made.dataset(), BATCH, shuffle=BlockShuffled(window=1), **pool).torch() as loader:
        n_rows, total, first, _ = counted(loader, lambda batch: batch["id"])
    seconds = time.perf_counter() - start
    if total != n_rows * (n_rows - 1) // 2 or n_rows != N_CONVERTED:
        raise ValueError(f"converter: {n_rows:,} rows, whose keys are {total:,} together")
    made.delete()
    spark.stop()
    return {
        "rows": n_rows,
        "seconds": seconds,
        "seconds_to_first": first,
        "seconds_to_convert": converted,
    }


# ---------------------------------------------------------------------- shuffling


def quality(way: str, folder: Path) -> dict[str, Any]:
    """How many neighbours among the rows that a loader gives are of one row group, by the window;
    of ``plain``.
    """
    order = (
        True if way == "full shuffle" else BlockShuffled(window=int(way.removeprefix("window ")))
    )
    ids = np.concatenate(
        [
            b["id"]
            for b in Loader(
                ParquetDataset(folder / "plain", ["id"]),
                BATCH,
                shuffle=order,
                seed=1,
                worker_kind="inline",
            )
        ]
    )
    if not np.array_equal(np.sort(ids), np.arange(len(ids))):
        raise ValueError("rows are missing")
    groups = ids // PLAIN_GROUP
    batches = groups[: len(groups) // BATCH * BATCH].reshape(-1, BATCH)
    return {
        "window": way,
        "same row group": float((groups[1:] == groups[:-1]).mean()),
        "row groups in a batch": float(np.mean([len(np.unique(batch)) for batch in batches])),
        "row groups": int(groups.max()) + 1,
    }


# ---------------------------------------------------------------------- files


def write_files(folder: Path, *, small: bool) -> dict[str, Any]:
    """The datasets that ``petastorm_peer.py write`` makes, where there is no Petastorm: of the same
    rows, readable by both.
    """
    rng, part = np.random.default_rng(0), 10 if small else 1
    (folder / "plain").mkdir(parents=True)
    for number in range(2):
        ids = np.arange(number * 100_000, (number + 1) * 100_000)
        columns = {
            "id": ids,
            "speed": rng.random(len(ids), dtype=np.float32),
            "position": rng.random(len(ids)),
            "label": [f"class-{i % 17}" for i in range(len(ids))],
            "vec": pa.array(list(rng.random((len(ids), 16), dtype=np.float32))),
        }
        pq.write_table(
            pa.table(columns),
            folder / "plain" / f"part-{number}.parquet",
            row_group_size=PLAIN_GROUP,
        )
    mnist = Schema(
        "Mnist",
        [
            Field("idx", "int64"),
            Field("digit", "int64"),
            Field("image", "uint8", (28, 28), PngCodec()),
        ],
    )
    options: dict[str, Any] = {"compression": "snappy", "petastorm": True}
    with ParquetWriter(folder / "mnist", mnist, row_group_mb=1, file_mb=4, **options) as writer:
        for i in range(60_000 // part):
            writer.append({"idx": i, "digit": i % 10, "image": _digit(i)})
    with ParquetWriter(
        folder / "frames", _frames((16, 64)), row_group_mb=8, file_mb=24, **options
    ) as writer:
        _write_frames(writer, 20_000, (16, 64))
    return {}


def _frames(shape: tuple[int, int]) -> Schema:
    return Schema(
        "Frames",
        [
            Field("timestamp", "int64"),
            Field("sensor", "int32"),
            Field("frame", "float32", shape, NdarrayCodec()),
        ],
    )


def _write_frames(writer: ParquetWriter, n_rows: int, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    for begin in range(0, n_rows, 1000):
        times = np.arange(begin, min(n_rows, begin + 1000))
        frames = rng.random((len(times), *shape), dtype=np.float32)
        writer.append_columns(
            {"timestamp": times, "sensor": (times % 100).astype("int32"), "frame": frames}
        )


def _digit(number: int) -> Any:
    rng = np.random.default_rng(number)
    image = np.zeros((28, 28), np.uint8)
    row, column = rng.integers(4, 10, 2)
    image[row : row + 14, column : column + 9] = (rng.random((14, 9)) > 0.45) * rng.integers(
        80, 255, (14, 9)
    )
    return image


# ---------------------------------------------------------------------- memory


def write_large(folder: Path, n_bytes: int) -> dict[str, Any]:
    """A dataset of frames of 64 KiB, uncompressed, in row groups of 16 MiB."""
    options: dict[str, Any] = {"row_group_mb": 16, "file_mb": 256, "compression": "none"}
    with ParquetWriter(folder / "frames", _frames(_LARGE_SHAPE), **options) as writer:
        _write_frames(writer, n_bytes // (4 * _LARGE_SHAPE[0] * _LARGE_SHAPE[1]), _LARGE_SHAPE)
    return {}


def memory(way: str, folder: Path, n_epochs: int) -> dict[str, Any]:
    """Proportional set size of this process and its workers over epochs: at most in each, beyond
    what it was before opening.
    """
    name, *rest = way.split(", ")
    kind: Any = next(each for each in rest if each in ("inline", "threads", "processes"))
    workers = None if kind == "inline" else 2
    window = next(
        (int(each.removeprefix("window ")) for each in rest if each.startswith("window ")), 1
    )
    path = folder / "frames"
    batches: Callable[[], Iterator[Any]]
    before = proportional_bytes(os.getpid())
    if name == "loader":
        dataset = ParquetDataset(path)
        loader = loader_of(dataset, window, kind, workers).__enter__()
        batches = lambda: iter(loader)  # noqa: E731  # one line, one use
        close = loader.close
    else:
        pool = {"inline": "dummy", "threads": "thread", "processes": "process"}[kind]
        reader = make_reader(
            path.as_uri(),
            reader_pool_type=pool,
            workers_count=workers or 1,
            num_epochs=None,
            seed=1,
        )
        dataset = reader.dataset
        n_rows = len(dataset)
        batches = lambda: itertools.islice(reader, n_rows)  # noqa: E731  # likewise
        close = reader.stop
    peaks = []
    for _ in range(n_epochs):
        peak, asked = 0, 0.0
        for _ in batches():
            if time.perf_counter() - asked > 0.05:
                peak, asked = max(peak, proportional_bytes(os.getpid())), time.perf_counter()
        peaks.append(peak)
    close()
    footer = pq.read_metadata(next(path.rglob("part-*.parquet")))
    group = footer.row_group(0)
    group_bytes = sum(
        group.column(leaf).total_uncompressed_size for leaf in range(group.num_columns)
    )
    return {
        "rows": len(dataset),
        "before": before,
        "peaks": peaks,
        "row_group_bytes": group_bytes,
        "workers": workers or 1,
    }


def main() -> None:
    """Measure one thing, print it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case")
    parser.add_argument("way")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    case, way, folder = given.case, given.way, given.folder.absolute()
    pa.set_cpu_count(len(os.sched_getaffinity(0)))
    found: Any
    if case in KEYS:
        is_limit = way.startswith(("pyarrow", "cv2"))
        found = (
            limit(case, way, folder)
            if is_limit
            else repeated(case, lambda: epoch_of(case, way, folder))
        )
    else:
        found = {
            "memory": lambda: memory(way, folder, given.epochs),
            "write-large": lambda: write_large(folder, given.bytes),
            "write-files": lambda: write_files(folder, small=given.small),
            "quality": lambda: quality(way, folder),
            "converter": lambda: converter(folder, way),
            "first": lambda: first_row(way, folder),
            "files": lambda: files(way),
            "predicate": lambda: predicate(way, folder),
        }[case]()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
