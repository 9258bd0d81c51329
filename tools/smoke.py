"""Loads a tiny dataset through each extra and plugin of the installed data_stack; `make dist-check`
runs it, far from the clone.

python smoke.py [EXTRA …]
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import data_stack
from data_stack.formats import records

ROWS = [{"number": i, "half": i / 2, "word": f"word {i}"} for i in range(4)]
COLUMNS = {"number": np.arange(4), "word": np.array([row["word"] for row in ROWS])}
PICTURE = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)


def through_records(kind: str, value: Any) -> Any:
    """Write a value as the record of a type, and read it."""
    with records.RecordWriter(f"records-{kind}", {"value": kind}) as writer:
        writer.append({"value": value})
    return records.open(f"records-{kind}")[0]["value"]


def words(iterator: Any) -> list[str]:
    """The column of words."""
    return [str(sample["word"]) for sample in iterator]


def expect(found: object, expected: object) -> None:
    """Fail where two values differ."""
    if found != expected:
        raise RuntimeError(f"expected {expected!r}, got {found!r}")


def check_mongodb() -> None:
    """A server is started if there is a mongod."""
    binary = os.environ.get("MONGOD") or shutil.which("mongod")
    if binary is None:
        data_stack.storage_connector_from_url("mongodb://localhost:1/smoke")  # connects to nothing
        return
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    Path("mongod").mkdir()
    command = [
        binary,
        "--dbpath",
        "mongod",
        "--port",
        str(port),
        "--bind_ip",
        "127.0.0.1",
        "--logpath",
        "mongod/log",
    ]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.1)
        expect(
            len(
                data_stack.load("digits", split="test", storage=f"mongodb://127.0.0.1:{port}/smoke")
            ),
            360,
        )
    finally:
        server.kill()
        server.wait()


def check_torch() -> None:
    """A batch of tensors."""
    batch = next(
        iter(data_stack.Loader(data_stack.from_numpy({"x": np.arange(8)}), batch_size=4).torch())
    )
    expect(batch["x"].tolist(), [0, 1, 2, 3])


def check_sklearn() -> None:
    """A catalogue, a stratified split, and a transformer as plain data."""
    from sklearn.preprocessing import StandardScaler

    wine = data_stack.load("sklearn:wine", split="all")
    expect(len(wine), 178)
    scaled = wine.encode({0: StandardScaler()}, fit_on=wine)
    expect(data_stack.from_recipe(scaled.recipe())[0][0].tolist(), scaled[0][0].tolist())
    expect(
        len(data_stack.SplitterFactory.get_stratified_splitter([0.5, 0.5], 0).split(wine)[0]), 89
    )


def check_images() -> None:
    """A picture as PNG, and a sheet of pictures."""
    expect(through_records("png", PICTURE).tolist(), PICTURE.tolist())
    expect(through_records("jpg", PICTURE).shape, PICTURE.shape)


def check_pandas() -> None:
    """A frame, both ways."""
    frame = data_stack.from_numpy(COLUMNS).to_pandas()
    expect(words(data_stack.from_pandas(frame)), [row["word"] for row in ROWS])


def check_polars() -> None:
    """A frame, both ways."""
    frame = data_stack.from_numpy(COLUMNS).to_polars()
    expect(words(data_stack.from_polars(frame)), [row["word"] for row in ROWS])


def check_huggingface() -> None:
    """A dataset of the library, both ways; the catalogue would need the network."""
    dataset = data_stack.from_numpy(COLUMNS).to_huggingface()
    expect(words(data_stack.from_huggingface(dataset)), [row["word"] for row in ROWS])
    expect_catalogue("hf")


def expect_catalogue(scheme: str) -> None:
    """Fail where the plugin of a catalogue is not found or does not load."""
    from data_stack.plugins.manager import default_manager

    default_manager().provided("catalogues")[scheme]


def check_parquet() -> None:
    """A file, written and loaded."""
    from data_stack.formats.parquet import ParquetWriter

    with ParquetWriter("parquet") as writer:
        for row in ROWS:
            writer.append(row)
    expect(words(data_stack.load("./parquet")), [row["word"] for row in ROWS])


def check_audio() -> None:
    """A sound."""
    expect(len(through_records("wav", (np.zeros((100, 1), np.int16), 8000))[0]), 100)


def check_video() -> None:
    """A film of three pictures."""
    expect(len(through_records("mp4", np.zeros((3, 32, 32, 3), np.uint8))), 3)


def check_zstd() -> None:
    """A compressed record."""
    expect(through_records("zstd(utf8)", "abc"), "abc")


def check_yaml() -> None:
    """A report in YAML."""
    iterator = data_stack.SequenceDatasetIterator([(i, i % 2) for i in range(4)])
    data_stack.DatasetIteratorReportGenerator.generate_report(iterator, "yaml")


def check_plots() -> None:
    """A drawing of counts."""
    from data_stack.show.plots import plot_counts

    plot_counts({"train": {0: 1, 1: 2}})


def check_croissant() -> None:
    """The columns of a table by a document."""
    Path("table.csv").write_text("word\nword 0\nword 1\n")
    file = {
        "@type": "cr:FileObject",
        "@id": "table.csv",
        "contentUrl": "table.csv",
        "encodingFormat": "text/csv",
    }
    file["sha256"] = hashlib.sha256(Path("table.csv").read_bytes()).hexdigest()
    source = {"fileObject": {"@id": "table.csv"}, "extract": {"column": "word"}}
    field = {"@type": "cr:Field", "@id": "table/word", "dataType": "sc:Text", "source": source}
    rows = {"@type": "cr:RecordSet", "@id": "table", "field": [field]}
    document = data_stack.to_croissant("digits") | {"distribution": [file], "recordSet": [rows]}
    Path("croissant.json").write_text(json.dumps(document))
    expect(words(data_stack.from_croissant("croissant.json", "memory://")), ["word 0", "word 1"])


def check_browse() -> None:
    """The application, without its server."""
    from data_stack.browse import server

    expect(server.__name__, "data_stack.browse.server")


def check_mcp() -> None:
    """The server, which answers nobody."""
    from data_stack.agents import server

    expect(server.__name__, "data_stack.agents.server")


def check_s3() -> None:
    """The store is made, and nothing connected."""
    data_stack.storage_connector_from_url("s3://bucket/prefix")


def check_gcs() -> None:
    """The store is made, and nothing connected."""
    data_stack.storage_connector_from_url("gs://bucket/prefix")


def check_azure() -> None:
    """The store is made, and nothing connected."""
    data_stack.storage_connector_from_url("az://container/prefix")


def check_cloud() -> None:
    """Each store is made, and nothing connected."""
    for url in ("s3://bucket", "gs://bucket", "az://bucket"):
        data_stack.storage_connector_from_url(url)


def check_testing() -> None:
    """The contracts."""
    from data_stack.testing import DatasetContract

    expect(DatasetContract.__name__, "DatasetContract")


def check_digits() -> None:
    """The dataset itself."""
    expect(len(data_stack.load("digits", split="train", storage="memory://")), 1437)


def check_iris() -> None:
    """The dataset itself."""
    expect(len(data_stack.load("iris", split="all", storage="memory://")), 150)


def check_classics() -> None:
    """24 datasets; their files would need the network."""
    expect(data_stack.describe("fashion-mnist").license, "MIT")
    expect({"cifar10", "titanic", "usps"} - {*data_stack.datasets()}, set())


def check_doi() -> None:
    """The catalogue."""
    expect_catalogue("doi")


def check_openml() -> None:
    """The catalogue."""
    expect_catalogue("openml")


def check_granular() -> None:
    """A dataset by Granular's names."""
    import data_stack_granular as granular

    with granular.DatasetWriter("granular", {"word": "utf8"}, granular.encoders) as writer:
        for row in ROWS:
            writer.append({"word": row["word"]})
    with granular.DatasetReader("granular", granular.decoders) as reader:
        expect(reader[2]["word"], "word 2")


def check_petastorm() -> None:
    """A reader by Petastorm's names."""
    from data_stack_petastorm import make_batch_reader

    check_parquet()
    with make_batch_reader(Path("parquet").absolute().as_uri()) as reader:
        expect(sum(len(batch.number) for batch in reader), len(ROWS))


def check_ray() -> None:
    """A dataset as a Ray Dataset, and back."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    import data_stack_ray
    import ray

    ray.init("local", num_cpus=1, include_dashboard=False, object_store_memory=100 << 20)
    try:
        dataset = data_stack_ray.from_data_stack(data_stack.from_numpy(COLUMNS))
        expect(data_stack_ray.write(dataset, storage="ray", name="words"), len(ROWS))
        expect(
            sorted(words(data_stack.load("words", storage="ray"))),
            sorted(str(row["word"]) for row in ROWS),
        )
    finally:
        ray.shutdown()


def check_spark() -> None:
    """A DataFrame as a dataset, if there is a Java."""
    import data_stack_spark

    if shutil.which("java") is None:
        return
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    try:
        frame = spark.createDataFrame([(i, i / 2) for i in range(4)], ["number", "half"])
        converter = data_stack_spark.make_spark_converter(
            frame, cache_dir=Path("spark").absolute().as_uri()
        )
        expect(len(converter.dataset()), 4)
    finally:
        spark.stop()


def check_tensorflow() -> None:
    """Batches of TensorFlow."""
    data_stack.to_tensorflow(data_stack.from_numpy({"x": np.arange(8)}))


def check_jax() -> None:
    """Batches of JAX."""
    import data_stack.loader.jax  # noqa: F401


def check_accelerate() -> None:
    """Loaders of accelerate."""
    import data_stack.loader.accelerate  # noqa: F401


def check_keras() -> None:
    """Batches for Keras, whose backend is another extra."""
    import data_stack.loader.keras  # noqa: F401


def check_lightning() -> None:
    """A callback of Lightning."""
    import data_stack.loader.lightning  # noqa: F401


#: Extras for those who work on data_stack.
NOT_FOR_USERS = {"all", "bench", "dev", "docs", "test"}

#: Extras that `make dist-check` does not install.
TOO_LARGE = {"accelerate", "jax", "keras", "lightning", "tensorflow"}

CHECKS: dict[str, Callable[[], None]] = {
    name[6:]: check for name, check in globals().items() if name.startswith("check_")
}


def main(extras: list[str]) -> int:
    """Run the checks of some extras, or of all; the number of those that failed."""
    failed = 0
    provided = set(importlib.metadata.metadata("lazy-data-stack").get_all("Provides-Extra") or ())
    expect(sorted(CHECKS), sorted(provided - NOT_FOR_USERS))
    for extra in extras or sorted(CHECKS.keys() - TOO_LARGE):
        folder = Path(extra).absolute()
        folder.mkdir()
        started = time.perf_counter()
        try:
            os.chdir(folder)
            CHECKS[extra]()
            print(f"ok      {extra} ({time.perf_counter() - started:.1f} s)", flush=True)
        except Exception:  # noqa: BLE001 - each check runs
            failed += 1
            print(f"FAILED  {extra}\n{traceback.format_exc()}", flush=True)
        finally:
            os.chdir(folder.parent)
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
