"""A conversion that was killed or failed goes on where it was, and never leaves a half target under its name."""

from __future__ import annotations

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
from data_stack.formats.records.place import place_of
from data_stack.formats.webdataset import SHARD_INDEX, shard_names
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

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": np.full((3, 4, 3), index % 256, np.uint8), "label": index % 7, "number": index}


class Failing(Pictures):
    """Fails at a sample."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __getitems__(self, indices: Any) -> list[Any]:
        if self.at in indices and len(indices) > 20:
            raise ValueError("failed")
        return super().__getitems__(indices)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_stack.formats.conversion.feed._MOST_IN_BATCH", 250)


def kill_midway(target: Path, **options: Any) -> None:
    program = PROGRAM.format(folder=str(Path(__file__).parent), target=str(target), options=options)
    text = "import data_stack.formats.conversion.feed as feed\nfeed._MOST_IN_BATCH = 250\n" + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


FORMATS: dict[str, dict[str, Any]] = {
    "records": {},
    "shards of records": {"shardlen": 750},
    "webdataset": {"target_format": "webdataset", "shardlen": 500},
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


@pytest.mark.parametrize("name", ["out.tar", "out.h5", "out.npz", "out.pt"])
def test_a_file_that_fails_leaves_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="failed"):
        convert(Failing(2000), tmp_path / name)

    assert os.listdir(tmp_path) == []


def test_shards_in_a_store_are_gone_on_with_and_listed_last() -> None:
    store = InMemoryStorageConnector()
    target, place = (store, "sets/out"), place_of(store, "sets/out")
    with pytest.raises(ValueError, match="failed"):
        convert(Failing(2000), target, target_format="webdataset", shardlen=500)
    assert shard_names(place) == [f"out-{number:06d}.tar" for number in range(4)]
    assert not place.exists(SHARD_INDEX)

    report = convert(Pictures(), target, shardlen=500)

    assert (report.n_there, report.n_verified) == (2000, N)


def test_what_threads_read_ahead_is_written_in_order(tmp_path: Path) -> None:
    convert(Pictures(), tmp_path / "out", jobs=4)

    with records.open(tmp_path / "out") as reader:
        assert reader.read_column("number").tolist() == list(range(N))
    with pytest.raises(ValueError, match="failed"):
        convert(Failing(2000), tmp_path / "other", jobs=4)


def test_samples_of_another_dataset_are_not_gone_on_with(tmp_path: Path) -> None:
    class Others(Pictures):
        def __getitem__(self, index: int) -> dict[str, Any]:
            return {**super().__getitem__(index), "label": 9}

    with pytest.raises(ValueError, match="failed"):
        convert(Failing(2000), tmp_path / "out")

    with pytest.raises(ConfigError, match=r"holds 2,000 samples already, which are none of .*: samples 0 \(label\)"):
        convert(Others(), tmp_path / "out")

    assert convert(Pictures(), tmp_path / "out").n_there == 2000


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


def test_sequences_are_gone_on_with_too(tmp_path: Path) -> None:
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

    assert (report.n_there, report.n_verified) == (600, 1000)
