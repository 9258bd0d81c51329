"""A conversion that was killed or failed goes on where it was, and never leaves a half target under its name."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_stack.dataset.digests import sample_digest
from data_stack.dataset.iterator import DatasetIterator
from data_stack.exception import ConfigError
from data_stack.formats import records
from data_stack.formats.conversion import convert
from data_stack.formats.webdataset import SHARD_INDEX, shard_names
from data_stack.io.folder import folder_of
from data_stack.io.resources import ResourceFactory
from data_stack.io.storage_connectors import InMemoryStorageConnector

N = 3000
PROGRAM = """
    import os, signal, sys
    from data_stack.formats.conversion import convert
    sys.path.insert(0, {folder!r})
    from test_conversion_resumption import Pictures

    class Killing(Pictures):
        def __getitems__(self, indices):
            if 2000 in indices and len(indices) > 20:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__getitems__(indices)

    convert(Killing(), {target!r}, **{options!r})
"""


class Pictures(DatasetIterator):
    """Small pictures with labels."""

    n_samples = N

    def __len__(self) -> int:
        return self.n_samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": np.full((3, 4, 3), index % 256, np.uint8), "label": index % 7, "number": index}


class Others(Pictures):
    """The same pictures with another label."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**super().__getitem__(index), "label": 9}


class Failing(Pictures):
    """Fails at a sample."""

    def __init__(self, at: int, error: BaseException | None = None) -> None:
        self.at, self.error = at, error or ValueError("failed")

    def __getitems__(self, indices: Any) -> list[Any]:
        if self.at in indices and len(indices) > 20:
            raise self.error
        return super().__getitems__(indices)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_stack.formats.conversion.conversion._MOST_IN_BATCH", 250)


def kill_midway(target: Path, **options: Any) -> None:
    program = PROGRAM.format(folder=str(Path(__file__).parent), target=str(target), options=options)
    often = "from data_stack.formats.conversion import conversion\nfrom data_stack.formats.records import writer\n"
    often += "conversion._MOST_IN_BATCH, writer._CHECKPOINT_SECONDS = 250, 0.0\n"
    text = often + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


FORMATS: dict[str, dict[str, Any]] = {
    "records": {},
    "shards of records": {"shardlen": 750},
    "webdataset": {"target_format": "webdataset", "shardlen": 250},
    "images": {"target_format": "images"},
}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_killed_conversion_goes_on_where_it_was(tmp_path: Path, kind: str) -> None:
    kill_midway(tmp_path / "out", **FORMATS[kind])
    assert kind.endswith("records") or not (tmp_path / "out").exists()

    report = convert(Pictures(), tmp_path / "out", **FORMATS[kind])

    assert (report.n_samples, report.n_verified) == (N, N)
    assert 1500 <= report.n_there <= 2000
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("name", ["out.tar", "out.h5", "out.npz", "out.pt"])
def test_a_killed_file_has_no_name_and_is_begun_anew(tmp_path: Path, name: str) -> None:
    kill_midway(tmp_path / name)
    assert not (tmp_path / name).exists()

    report = convert(Pictures(), tmp_path / name)

    assert (report.n_there, report.n_verified) == (0, N)


TARGETS: dict[str, dict[str, Any]] = {
    **{kind: {"target": "out", **options} for kind, options in FORMATS.items()},
    "parquet": {"target": "out.parquet", "shardlen": 250},
    **{name: {"target": name} for name in ("out.tar", "out.h5", "out.npz", "out.pt")},
}
ON_FULL_DISKS = """
    import os, resource, shutil, signal, sys
    from data_stack.formats.conversion import convert
    sys.path.insert(0, {folder!r})
    import numpy as np
    from test_conversion_resumption import TARGETS, Pictures

    class Noise(Pictures):
        n_samples = 500

        def __getitem__(self, index):
            image = np.random.default_rng(index).integers(0, 255, (16, 16, 3), dtype=np.uint8)
            return {{"image": image, "label": index % 7}}

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for kind, options in TARGETS.items():
        target = os.path.join({target!r}, options.pop("target"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000 if kind != "images" else 200, resource.RLIM_INFINITY))
        try:
            convert(Noise(), target, **options)
        except OSError as error:
            print(kind, type(error).__name__, os.listdir({target!r}))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(kind, convert(Noise(), target, **options).n_there)
        shutil.rmtree(target) if os.path.isdir(target) else os.unlink(target)
"""


@pytest.mark.parametrize("kind", TARGETS)
def test_a_failure_leaves_nothing_that_is_in_the_way_of_the_next_try(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pictures, "n_samples", 600)
    options = dict(TARGETS[kind])
    target = tmp_path / options.pop("target")

    with pytest.raises(ValueError, match="failed"):
        convert(Failing(550), target, **options)

    assert os.listdir(tmp_path) == []
    again = convert(Others(), target, columns="image,number" if kind != "images" else None, **options)
    assert (again.n_there, again.n_verified) == (0, 600)


def test_a_full_disk_leaves_nothing_that_is_in_the_way_of_the_next_try(tmp_path: Path) -> None:
    program = textwrap.dedent(ON_FULL_DISKS.format(folder=str(Path(__file__).parent), target=str(tmp_path)))

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1::2] == [f"{kind} 0" for kind in TARGETS]
    assert all(line.endswith("Error []") for line in lines[::2]), lines


@pytest.mark.parametrize("kind", ["records", "shards of records", "webdataset", "images", "parquet"])
def test_a_failure_leaves_nothing_in_a_store(kind: str) -> None:
    options = {name: value for name, value in TARGETS[kind].items() if name != "target"}
    store = InMemoryStorageConnector()
    store.set_resource("sets/other", ResourceFactory.get_resource("sets/other", io.BytesIO(b"kept")))

    with pytest.raises(ValueError, match="failed"):
        convert(Failing(2000), (store, "sets/out"), **{"target_format": "parquet" if kind == "parquet" else None, **options})

    assert list(store.list_resources("")) == ["sets/other"]


@pytest.mark.parametrize("kind", TARGETS)
def test_an_interruption_is_gone_on_with(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pictures, "n_samples", 600)
    options = dict(TARGETS[kind])
    target = tmp_path / options.pop("target")
    with pytest.raises(KeyboardInterrupt):
        convert(Failing(550, KeyboardInterrupt()), target, **options)

    report = convert(Pictures(), target, **options)

    assert (report.n_there > 0) == (target.suffix not in (".tar", ".h5", ".npz", ".pt"))
    assert report.n_verified == 600


def test_a_failure_leaves_an_empty_folder_that_was_there(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    with pytest.raises(ValueError, match="failed"):
        convert(Failing(2000), tmp_path / "out")

    assert [os.listdir(tmp_path), os.listdir(tmp_path / "out")] == [["out"], []]


def test_a_failure_leaves_what_an_interruption_had_left(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        convert(Failing(1000, KeyboardInterrupt()), tmp_path / "out")
    with pytest.raises(ValueError, match="failed"):
        convert(Failing(2000), tmp_path / "out")

    assert convert(Pictures(), tmp_path / "out").n_there == 2000


def test_shards_in_a_store_are_gone_on_with_and_listed_last() -> None:
    store = InMemoryStorageConnector()
    target, folder = (store, "sets/out"), folder_of(store, "sets/out")
    with pytest.raises(KeyboardInterrupt):
        convert(Failing(2000, KeyboardInterrupt()), target, target_format="webdataset", shardlen=500)
    assert shard_names(folder) == [f"out-{number:06d}.tar" for number in range(4)]
    assert not folder.has_file(SHARD_INDEX)

    report = convert(Pictures(), target, shardlen=500)

    assert (report.n_there, report.n_verified) == (2000, N)


@pytest.mark.parametrize("kind", ["records", "webdataset"])
def test_samples_of_another_dataset_are_not_gone_on_with(tmp_path: Path, kind: str) -> None:
    options = FORMATS[kind]
    with pytest.raises(KeyboardInterrupt):
        convert(Failing(2000, KeyboardInterrupt()), tmp_path / "out", **options)

    with pytest.raises(ConfigError, match=r"holds 2,000 samples already, which are none of .*: samples 0 \(label\)"):
        convert(Others(), tmp_path / "out", **options)

    assert convert(Pictures(), tmp_path / "out", **options).n_there == 2000


def test_a_dataset_that_has_grown_is_appended_to(tmp_path: Path) -> None:
    class Beginning(Pictures):
        def __len__(self) -> int:
            return 1000

    convert(Beginning(), tmp_path / "out")

    report = convert(Pictures(), tmp_path / "out")

    assert (report.n_there, report.n_verified) == (1000, N)
    with pytest.raises(ConfigError, match="holds 3,000 samples already, more than"):
        convert(Beginning(), tmp_path / "out")
    with records.open(tmp_path / "out") as reader:
        assert sample_digest(reader[-1]) == sample_digest(Pictures()[N - 1])


def test_sequences_are_begun_anew(tmp_path: Path) -> None:
    spec = {"frames": "bytes[]", "number": "i64"}
    samples = [{"frames": [bytes([number % 256])] * (number % 3), "number": number} for number in range(1000)]
    with records.RecordWriter(tmp_path / "source", spec) as writer:
        for sample in samples:
            writer.append(sample)
    with pytest.raises(ValueError, match="failed"), records.RecordWriter(tmp_path / "out", spec) as writer:
        for sample in samples[:600]:
            writer.append(sample, flush=True)
        raise ValueError("failed")

    report = convert(tmp_path / "source", tmp_path / "out")

    assert (report.n_there, report.n_verified) == (0, 1000)
