"""Datasets as Ray Datasets, and back."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from process_harness import until
from writing import append_all

import data_stack
from data_stack.exception import ConfigError, StorageConflictError
from data_stack.formats import records
from data_stack.formats.parquet import ParquetDataset, ParquetWriter
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.testing.comparing import assert_same

pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray, pandas and protobuf

N_ROWS = 60


def row(i: int) -> dict[str, Any]:
    """A sample with a value of each kind."""
    return {
        "id": i,
        "image": np.full((4, 5, 3), i % 256, np.uint8),
        "name": f"row {i}",
        "ragged": np.full((i % 3 + 1, 2), i, np.float32),
        "raw": bytes([i]) * (i % 4),
        "tree": {"numbers": [i, i + 1], "word": "x"},
    }


@pytest.fixture
def rows(ray_cluster: None, tmp_path: Path) -> Any:
    """60 records of :func:`row`."""
    kinds = {
        "id": "i64",
        "image": "array",
        "name": "utf8",
        "ragged": "array",
        "raw": "bytes",
        "tree": "json",
    }
    append_all(records.RecordWriter(tmp_path / "rows", kinds), (row(i) for i in range(N_ROWS)))
    return data_stack.load(tmp_path / "rows")


# ------------------------------------------------------------------ reading


def test_all_kinds_of_values_arrive(rows: data_stack.DatasetIteratorIF) -> None:
    from data_stack_ray import from_data_stack

    dataset = from_data_stack(rows, override_num_blocks=4)

    samples = sorted(dataset.take_all(), key=lambda sample: sample["id"])
    assert_same(samples, [row(i) for i in range(N_ROWS)])
    assert dataset.count() == N_ROWS


def test_columns_that_nobody_uses_are_not_read(
    rows: data_stack.DatasetIteratorIF, tmp_path: Path
) -> None:
    from data_stack_ray import from_data_stack

    dataset = from_data_stack(rows, override_num_blocks=4)
    image_file = tmp_path / "rows" / "image.bag"
    image_file.write_bytes(bytes(image_file.stat().st_size))  # damaged

    ids = [sample["id"] for sample in dataset.select_columns(["id"]).take_all()]

    assert sorted(ids) == list(range(N_ROWS))
    with pytest.raises(Exception, match=r"image\.bag"):
        dataset.select_columns(["image"]).take_all()


def test_a_dataset_that_workers_cannot_open_is_an_error(
    rows: data_stack.DatasetIteratorIF, tmp_path: Path
) -> None:
    from data_stack_ray import from_data_stack

    dataset = from_data_stack(rows, override_num_blocks=4)
    (tmp_path / "rows" / "image.bag").write_bytes(b"")

    with pytest.raises(Exception, match=r"image\.bag is cut short"):
        dataset.select_columns(["id"]).take_all()


@pytest.mark.parametrize(
    ("samples", "names"),
    [
        ([(np.ones(3), f"t{i}") for i in range(7)], ["column_0", "column_1"]),
        (list(range(7)), ["value"]),
        (
            data_stack.from_numpy({"x": np.arange(7), "y": np.ones((7, 2))}).map(
                lambda sample: {"z": sample["x"] * 2}
            ),
            ["z"],
        ),
    ],
    ids=["tuples", "bare", "function"],
)
def test_samples_of_each_form_in_memory_have_named_columns(
    ray_cluster: None, samples: Any, names: list[str]
) -> None:
    from data_stack_ray import from_data_stack

    rows = from_data_stack(samples).take_all()

    assert [list(read_row) for read_row in rows] == [names] * 7


def test_tasks_read_whole_row_groups_that_the_filter_leaves(
    ray_cluster: None, tmp_path: Path
) -> None:
    from data_stack_ray import from_data_stack
    from data_stack_ray.samples_source import SamplesSource

    append_all(ParquetWriter(tmp_path, row_group_rows=10), ({"id": i} for i in range(100)))
    chosen = ParquetDataset(tmp_path, filters=[("id", ">=", 70)])

    tasks = SamplesSource(chosen, None).get_read_tasks(2)

    assert [task.metadata.num_rows for task in tasks] in ([10, 20], [20, 10])
    ids = [read_row["id"] for read_row in from_data_stack(chosen).take_all()]
    assert sorted(ids) == list(range(70, 100))


@pytest.mark.parametrize(
    ("n_samples", "n_ranges", "block_lengths", "ranges"),
    [
        (10, 2, None, [range(5), range(5, 10)]),
        (2, 5, None, [range(1), range(1, 2)]),
        (0, 5, None, []),
        (10, 2, [4, 3, 3], [range(4), range(4, 10)]),
        (10, 9, [8, 2], [range(8), range(8, 10)]),
        (0, 3, [], []),
    ],
)
def test_samples_are_split_where_blocks_end(
    n_samples: int, n_ranges: int, block_lengths: list[int] | None, ranges: list[range]
) -> None:
    from data_stack_ray.samples_source import split_samples

    lengths = None if block_lengths is None else np.array(block_lengths, np.int64)

    assert split_samples(n_samples, n_ranges, lengths) == ranges


def test_samples_that_cannot_be_sent_are_refused(ray_cluster: None) -> None:
    from data_stack_ray import from_data_stack

    numbers = data_stack.from_numpy({"x": np.arange(3)})
    lock = threading.Lock()

    with pytest.raises(ConfigError, match="cannot be sent"):
        from_data_stack(numbers.map(lambda sample: (lock, sample)[1]))
    with pytest.raises(ConfigError, match="expected an iterator"):
        from_data_stack(3)
    with pytest.raises(ConfigError, match="no column 'y'; they have x"):
        from_data_stack(numbers, columns=["y"])


def test_a_store_in_the_memory_of_this_process_is_refused(ray_cluster: None) -> None:
    from data_stack_ray import from_data_stack, write

    numbers = from_data_stack(data_stack.from_numpy({"x": np.arange(3)}))

    with pytest.raises(ConfigError, match="in the memory of this process"):
        write(numbers, storage="memory://", name="numbers")


# ------------------------------------------------------------------ writing


def column(store: data_stack.StorageConnector, dataset: str, name: str) -> Any:
    """A column of a dataset in a store."""
    loaded: Any = data_stack.load(dataset, storage=store)
    return loaded.read_column(name).tolist()


def listing(folder: Path) -> list[str]:
    """All files and folders, but those of the store itself."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if ".data_stack" not in path.parts
    )


@pytest.mark.parametrize("kind", ["records", "parquet"])
def test_a_ray_dataset_is_loaded_by_its_name(
    rows: data_stack.DatasetIteratorIF, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    from data_stack_ray import from_data_stack, write
    from ray.data import DataContext

    store = tmp_path / "store"
    dataset = from_data_stack(rows, override_num_blocks=3)
    monkeypatch.setattr(DataContext.get_current().execution_options, "preserve_order", True)
    n_rows = write(dataset, storage=store, name="sets/train", format=kind)

    loaded = data_stack.load("sets", "train", storage=store)
    assert n_rows == N_ROWS
    assert_same(list(loaded), [row(i) for i in range(N_ROWS)])
    assert [path for path in listing(store) if "attempts" in path or "progress" in path] == []
    with pytest.raises(ConfigError, match="exists already"):
        write(dataset, storage=store, name="sets/train")


def test_nulls_of_parquet_stay_and_a_store_is_a_connector(
    ray_cluster: None, mongodb_uri: str
) -> None:
    import pyarrow as pa
    import ray.data
    from data_stack_ray import write

    store = data_stack.storage_connector_from_url(mongodb_uri)
    numbers = pa.table({"x": pa.array([1, None, 3], pa.int32()), "t": ["a", None, "c"]})

    write(ray.data.from_arrow(numbers), storage=store, name="numbers", format="parquet")
    write(
        ray.data.from_arrow(numbers.drop_null()),
        storage=store,
        name="others",
        schema={"x": "i64", "t": "zstd(utf8)"},
    )

    assert column(store, "numbers", "x") == [1, None, 3]
    assert column(store, "others", "t") == ["a", "c"]
    assert not [name for name in store.list_resources() if "attempts" in name or "progress" in name]


def _fail(batch: Any) -> Any:
    if 50 in batch["id"]:
        raise ValueError("fifty cannot be done")
    return batch


def _change(batch: Any) -> Any:
    ids = batch["id"]
    if 50 in ids:
        ids = ids.astype(str)
    return {"id": ids}


@pytest.mark.parametrize("kind", ["records", "parquet"])
@pytest.mark.parametrize(
    ("function", "match"),
    [(_fail, "fifty"), (_change, "differ in their columns"), (None, "no rows")],
)
def test_a_dataset_that_cannot_be_written_leaves_nothing(
    ray_cluster: None, tmp_path: Path, kind: Any, function: Any, match: str
) -> None:
    import ray.data
    from data_stack_ray import write

    numbers = ray.data.range(60 if function else 0, override_num_blocks=3)

    with pytest.raises(Exception, match=match):
        write(numbers.map_batches(function or _fail), storage=tmp_path, name="numbers", format=kind)

    # A task that was not the one that failed removes its own when it ends. If Ray kills it, garbage
    # collection does.
    assert until(
        lambda: not FileStorageConnector(tmp_path).collect_garbage(0) and listing(tmp_path) == []
    )
    for name in ("numbers", "no name", "scheme:of/none"):
        with pytest.raises(data_stack.DatasetNotFoundError):
            data_stack.load(name, storage=tmp_path)


def test_a_task_whose_worker_dies_is_written_once(ray_cluster: None, tmp_path: Path) -> None:
    import ray.data
    from data_stack_ray import write

    store = FileStorageConnector(tmp_path / "store")
    died = tmp_path / "died"

    def die_once(batch: Any) -> Any:
        if 50 in batch["id"] and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    numbers = ray.data.range(60, override_num_blocks=3)
    write(numbers.map_batches(die_once), storage=store, name="numbers")

    assert died.exists()
    assert sorted(column(store, "numbers", "id")) == list(range(60))
    assert folders_of_dataset(tmp_path / "store") == {"000000", "000001", "000002"}


def test_what_a_killed_writer_left_is_removed(ray_cluster: None, tmp_path: Path) -> None:
    import ray.data
    from data_stack_ray import write
    from data_stack_ray.unfinished_dataset import UnfinishedDataset

    store = FileStorageConnector(tmp_path / "store")
    with contextlib.suppress(KeyboardInterrupt), UnfinishedDataset(store, "numbers").writing():
        marker = store.get_resource("numbers/_data_stack_progress/ray").read()
        raise KeyboardInterrupt
    for name in (
        "_data_stack_progress/ray",
        "000001/spec.json",
        "_data_stack_attempts/1/spec.json",
    ):
        with store.create(f"numbers/{name}") as file:
            file.write(marker)
    with pytest.raises(data_stack.DataStackError):
        data_stack.load("numbers", storage=store)

    write(ray.data.range(20, override_num_blocks=1), storage=store, name="numbers")

    assert sorted(column(store, "numbers", "id")) == list(range(20))
    assert folders_of_dataset(tmp_path / "store") == {"000000"}


def test_two_processes_do_not_write_one_dataset(ray_cluster: None, tmp_path: Path) -> None:
    import ray.data
    from data_stack_ray import write
    from data_stack_ray.unfinished_dataset import UnfinishedDataset

    store = FileStorageConnector(tmp_path / "store")

    with contextlib.suppress(KeyboardInterrupt), UnfinishedDataset(store, "numbers").writing():
        with pytest.raises(StorageConflictError):
            write(ray.data.range(3), storage=store, name="numbers")
        raise KeyboardInterrupt

    assert listing(tmp_path / "store") == []


def folders_of_dataset(store_folder: Path) -> set[str]:
    """The names of the folders of the dataset ``numbers``."""
    return {path.split("/")[1] for path in listing(store_folder) if "/" in path}
