"""What is written, what is refused, and where it may be written."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fault_records
import numpy as np
import pytest
from fault_records import SPECS, sample
from full_disk import files_limited
from hypothesis import given
from hypothesis import strategies as st
from mongodb_server import folder_in_memory
from process_harness import Fault, Harness, until
from sizes import sized, spread
from writing import append_all, files_of

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DataStackError,
    StorageConflictError,
    StorageFullError,
)
from data_stack.formats import records
from data_stack.formats.records import ColumnType, RecordReader, RecordWriter
from data_stack.formats.records import writer as record_writer
from data_stack.io.storage_connectors import FileStorageConnector, StorageConnector
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector
from data_stack.testing.comparing import assert_same

SPEC: dict[str, str | ColumnType] = {
    "id": "i64",
    "name": "utf8",
    "x": ColumnType("array", "float32", (3,)),
    "y": "array",
}


def rows(n: int) -> list[dict[str, Any]]:
    return [
        {
            "id": i,
            "name": f"n{i}",
            "x": np.full(3, i, np.float32),
            "y": np.arange(i % 4, dtype=np.int16),
        }
        for i in range(n)
    ]


def columns(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": np.array([each["id"] for each in samples], np.int64),
        "name": [each["name"] for each in samples],
        "x": np.array([each["x"] for each in samples], np.float32).reshape(-1, 3),
        "y": [each["y"] for each in samples],
    }


def files(folder: Path) -> dict[str, bytes]:
    return files_of(folder, "writing.lock")


# ---------------------------------------------------------------------- what is written


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["append", "extend", "flush", "reopen", "break off"]),
            st.integers(0, 30),
        )
    )
)
def test_the_files_do_not_depend_on_how_samples_were_given(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory(dir=folder_in_memory()) as folder:
        n_samples = sum(size for what, size in steps if what in ("append", "extend"))
        samples = rows(n_samples)
        append_all(RecordWriter(Path(folder) / "whole", SPEC), samples)

        writer = RecordWriter(Path(folder) / "parts", SPEC)
        for what, size in steps:
            done = len(writer)
            if what == "append":
                for each in samples[done : done + size]:
                    writer.append(each, flush=size % 3 == 0)
            elif what == "extend":
                writer.extend(columns(samples[done : done + size]))
            elif what == "flush":
                writer.flush()
            else:
                writer.close() if what == "reopen" else writer.abandon()
                writer = RecordWriter(Path(folder) / "parts", SPEC)
        writer.close()

        assert files(Path(folder) / "parts") == files(Path(folder) / "whole")


def test_an_appended_sample_is_seen_once_it_is_flushed(tmp_path: Path) -> None:
    first, second, third = rows(3)
    with RecordWriter(tmp_path / "a", SPEC) as writer:
        assert writer.append(first) == 0
        size = writer.size
        writer.flush()
        assert writer.size == size
        assert (writer.append(second, flush=True), writer.append(third)) == (1, 2)
        with RecordReader(tmp_path / "a") as reader:
            assert (len(writer), len(reader)) == (3, 2)


def test_a_writer_flushes_by_itself_after_an_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RecordWriter(tmp_path / "a", SPEC) as writer:
        writer.append(rows(1)[0], flush=True)
        for seconds, n_seen in ((30.0, 1), (0.0, 5)):
            monkeypatch.setattr(record_writer, "_CHECKPOINT_SECONDS", seconds)
            writer.extend(columns(rows(2)))
            with RecordReader(tmp_path / "a") as reader:
                assert len(reader) == n_seen


def test_samples_are_written_once_they_are_a_mebibyte(tmp_path: Path) -> None:
    half, bag = (
        bytes((1 << 19) - 8),
        tmp_path / "a/blob.bag",
    )  # half a mebibyte with its entry in the index
    with RecordWriter(tmp_path / "a", {"blob": "bytes"}) as writer:
        written = [
            (writer.append({"blob": half}), writer.size, bag.stat().st_size) for _ in range(3)
        ]

    assert written == [(0, 1 << 19, 0), (1, 1 << 20, 0), (2, 3 << 19, 2 * len(half))]


# 64 at first, then about a kibibyte, at most 16 times as many
@pytest.mark.parametrize(
    ("n_bytes", "n_good", "n_kept"), [(0, 1087, 64), (0, 1088, 1088), (64, 96, 96), (4096, 65, 65)]
)
def test_columns_are_kept_up_to_the_piece_with_refused_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_bytes: int, n_good: int, n_kept: int
) -> None:
    monkeypatch.setattr(record_writer, "_EXTENDED_BYTES_AT_ONCE", 1 << 10)
    good = ["n" * n_bytes] * n_good
    with RecordWriter(tmp_path / "a", {"name": "utf8"}) as writer:
        with pytest.raises(ConfigError, match=f"column 'name', sample {n_good}, "):
            writer.extend({"name": [*good, 5, ""]})
        assert len(writer) == n_kept

    with RecordReader(tmp_path / "a") as reader:
        assert list(reader) == [{"name": name} for name in good[:n_kept]]


# ---------------------------------------------------------------------- what is refused


MASKED = np.ma.masked_array(np.zeros((5, 3), np.float32), mask=True)


@pytest.mark.parametrize(
    ("way", "change"),
    [
        ("append", {"id": "one"}),
        ("append", {"x": np.zeros(4, np.float32)}),
        ("append", {"x": np.zeros(3, np.float64)}),
        ("append", {"x": MASKED[0]}),
        ("append", {"y": np.array([None])}),
        ("append", {"z": 1}),
        ("append", {"id": ...}),
        ("extend", {"id": np.zeros(5)}),
        ("extend", {"id": np.array([2**63] * 5, np.uint64)}),
        ("extend", {"x": np.zeros((5, 2), np.float32)}),
        ("extend", {"x": MASKED}),
        ("extend", {"name": ["a"] * 4}),
        ("extend", {"name": "abcde"}),
        ("extend", {"name": np.array("abcde")}),
        ("extend", {"z": [1] * 5}),
        ("extend", {"name": ...}),
    ],
)
def test_values_that_do_not_fit_are_refused_with_their_samples(
    tmp_path: Path, way: str, change: Mapping[str, Any]
) -> None:
    good: dict[str, Any] = rows(6)[1] if way == "append" else columns(rows(6)[1:])
    given = {name: value for name, value in {**good, **change}.items() if value is not ...}
    with RecordWriter(tmp_path / "a", SPEC) as writer:
        writer.append(rows(1)[0], flush=True)

        with pytest.raises(ConfigError, match=f"'{next(iter(change))}'"):
            getattr(writer, way)(given)
        with pytest.raises(ConfigError, match="is list, not a dict of its columns"):
            getattr(writer, way)(list(given))

        assert len(writer) == 1
        writer.extend(columns(rows(6)[1:]))
    with RecordWriter(tmp_path / "b", SPEC) as writer:
        writer.extend(columns(rows(6)))
    assert files(tmp_path / "a") == files(tmp_path / "b")


@pytest.mark.parametrize("sequence", ["abc", b"abc", 5, [b"ok", 5]])
def test_a_value_that_is_no_sequence_is_refused(tmp_path: Path, sequence: Any) -> None:
    with RecordWriter(tmp_path / "a", {"id": "i64", "parts": "bytes[]"}) as writer:
        writer.append({"id": 0, "parts": [b"a", b"b"]})
        assert writer.size == 10 + 3 * 8

        with pytest.raises(ConfigError, match="column 'parts', sample 1"):
            writer.append({"id": 1, "parts": sequence})

        writer.append({"id": 1, "parts": (part for part in (b"c", b"d"))})
    with RecordReader(tmp_path / "a") as reader:
        assert list(reader) == [{"id": 0, "parts": [b"a", b"b"]}, {"id": 1, "parts": [b"c", b"d"]}]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        [],
        {"Upper": "i64"},
        {"refs": "i64"},
        {"a/b": "i64"},
        {"a": "none"},
        {"a": 5},
        {"a": ColumnType("i64", "float32")},
    ],
)
def test_a_spec_that_is_none_is_refused_and_leaves_nothing(tmp_path: Path, spec: Any) -> None:
    with pytest.raises(ConfigError):
        RecordWriter(tmp_path / "a", spec)

    assert list(tmp_path.iterdir()) == []


def test_large_columns_are_unchanged_by_later_use_of_their_buffer(
    tmp_path: Path,
) -> None:
    x = np.random.default_rng(1).random((4, 2_000, 256), np.float32)  # hashed in a thread
    lent, names = np.empty_like(x[0]), ["n"] * len(x[0])
    with RecordWriter(
        tmp_path / "a", {"x": ColumnType("array", "float32", (256,)), "z": "utf8"}
    ) as writer:
        for lent[...] in x:
            writer.extend({"x": lent, "z": names})
            with pytest.raises(ConfigError, match="column 'z', sample"):
                writer.extend({"x": -lent, "z": [5] * len(lent)})

    with RecordReader(tmp_path / "a") as reader:
        reader.verify()
        assert np.array_equal(reader.read_batch(np.arange(len(reader)))["x"], x.reshape(-1, 256))


def test_a_closed_writer_takes_nothing(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "a", SPEC)
    writer.append(rows(1)[0])
    writer.close()

    writer.close()
    for use in (
        lambda: writer.append(rows(1)[0]),
        lambda: writer.extend(columns(rows(2))),
        writer.flush,
    ):
        with pytest.raises(
            ConfigError, match=f"cannot append to '{tmp_path}/a': its writer is closed"
        ):
            use()

    with RecordReader(tmp_path / "a") as reader:
        reader.verify()
        assert len(reader) == 1


# ---------------------------------------------------------------------- going on


def test_a_writer_broken_by_a_full_disk_says_so(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "a", SPEC)
    writer.append(rows(1)[0], flush=True)
    with files_limited(1000), pytest.raises(StorageFullError):
        writer.extend(columns(rows(500)))

    for use in (lambda: writer.append(rows(1)[0]), writer.flush, writer.close):
        with pytest.raises(
            ConfigError,
            match=r"its writer is broken by an error \(could not write .*Open the dataset again",
        ):
            use()
    writer.abandon()
    with RecordWriter(tmp_path / "a", SPEC) as writer:
        assert len(writer) == 1


def test_an_interrupted_dataset_with_sequences_begins_anew(tmp_path: Path) -> None:
    spec = {"parts": "bytes[]"}
    with pytest.raises(KeyError):
        with RecordWriter(tmp_path / "a", spec) as writer:
            writer.append({"parts": [b"gone"]})
            raise KeyError
    left = list((tmp_path / "a").iterdir())

    with RecordWriter(tmp_path / "a", spec) as writer:
        writer.append({"parts": [b"a"]})

    assert left == []
    with RecordReader(tmp_path / "a") as reader:
        assert list(reader) == [{"parts": [b"a"]}]


def test_a_dataset_with_sequences_has_one_writer_at_once(tmp_path: Path) -> None:
    spec = {"parts": "bytes[]"}

    with RecordWriter(tmp_path / "a", spec) as writer:
        writer.append({"parts": [b"a"]})
        with pytest.raises(StorageConflictError):
            RecordWriter(tmp_path / "a", spec)


def test_a_finished_dataset_with_sequences_is_not_appended_to(tmp_path: Path) -> None:
    spec = {"parts": "bytes[]"}
    with RecordWriter(tmp_path / "a", spec) as writer:
        writer.append({"parts": [b"a"]})
    before = files(tmp_path / "a")

    with pytest.raises(ConfigError, match="exists already"):
        RecordWriter(tmp_path / "a", spec)

    assert files(tmp_path / "a") == before


def test_a_dataset_of_other_columns_is_not_touched(tmp_path: Path) -> None:
    append_all(RecordWriter(tmp_path / "a", SPEC), rows(4))
    before = files(tmp_path / "a")

    with pytest.raises(ConfigError, match="other columns"):
        RecordWriter(tmp_path / "a", {"id": "i64"})
    with pytest.raises(ConfigError, match="column 'x' is not of"):
        RecordWriter(tmp_path / "a", {**SPEC, "x": ColumnType("array", "float64", (3,))})

    assert files(tmp_path / "a") == before


@pytest.mark.parametrize("name", ["id.bag", "id.idx"])
def test_a_truncated_finished_dataset_is_not_taken_for_interrupted(
    tmp_path: Path, name: str
) -> None:
    append_all(RecordWriter(tmp_path / "a", SPEC), rows(50))
    os.truncate(tmp_path / "a" / name, 100)
    before = files(tmp_path / "a")

    with pytest.raises(DatasetFileCorruptError, match="is cut short"):
        RecordWriter(tmp_path / "a", SPEC)

    assert files(tmp_path / "a") == before


@pytest.fixture
def interrupted_index(tmp_path: Path) -> Path:
    """The index of 50 numbers in the folder ``a``, which has no manifest."""
    append_all(RecordWriter(tmp_path / "a", {"id": "i64"}), ({"id": i} for i in range(50)))
    (tmp_path / "a" / "manifest.json").unlink()
    return tmp_path / "a" / "id.idx"


def test_an_index_that_ends_in_zeros_is_a_power_cut(interrupted_index: Path) -> None:
    entries = np.fromfile(interrupted_index, "<u8")
    interrupted_index.write_bytes(entries[:40].tobytes() + bytes(80))

    with RecordWriter(interrupted_index.parent, {"id": "i64"}) as writer:
        assert len(writer) == 40


def test_an_index_that_decreases_is_damage(interrupted_index: Path) -> None:
    entries = np.fromfile(interrupted_index, "<u8")
    entries[20] = 3
    interrupted_index.write_bytes(entries.tobytes())

    with pytest.raises(DatasetFileCorruptError, match=r"entry 20 is smaller"):
        RecordWriter(interrupted_index.parent, {"id": "i64"})


# ---------------------------------------------------------------------- in stores


@pytest.fixture(params=["memory", "file", "mongodb"])
def connector(request: pytest.FixtureRequest, tmp_path: Path) -> StorageConnector:
    if request.param == "memory":
        return InMemoryStorageConnector()
    if request.param == "file":
        return FileStorageConnector(tmp_path / "store")
    return MongoDBStorageConnector(request.getfixturevalue("mongodb_uri"))


@pytest.mark.parametrize(
    "spec",
    [SPEC, {"id": "i64", "parts": "bytes[]"}, {"parts": "bytes[]"}],
    ids=["columns", "sequences", "empty"],
)
def test_a_store_holds_the_same_bytes_as_a_folder(
    connector: StorageConnector, tmp_path: Path, spec: Mapping[str, str | ColumnType]
) -> None:
    samples = (
        rows(40)
        if "x" in spec
        else [{"id": i, "parts": [b"", b"a" * i][i % 2 :]} for i in range(40)]
    )
    samples = [{name: each[name] for name in spec} for each in samples]

    for target, prefix in ((tmp_path / "folder", ""), (connector, "a/train")):
        with RecordWriter(target, spec, prefix=prefix) as writer:
            for each in samples[:20]:
                writer.append(each, flush=True)
            writer.extend({name: [each[name] for each in samples[20:]] for name in spec})
            writer.flush()

    stored = {}
    for name in connector.list_resources("a/train/"):
        with connector.get_resource(name) as file:
            stored[name.removeprefix("a/train/")] = file.read()
    assert stored == {path.name: path.read_bytes() for path in (tmp_path / "folder").iterdir()}
    with RecordReader(connector, prefix="a/train") as reader:
        reader.verify()
        assert len(reader) == 40


def test_nothing_is_stored_before_the_end_or_after_an_error(
    connector: StorageConnector,
) -> None:
    seen = None
    with pytest.raises(KeyError):
        with RecordWriter(connector, SPEC, prefix="a") as writer:
            writer.extend(columns(rows(10)))
            writer.flush()
            seen = connector.list_resources("a")
            raise KeyError

    assert seen == connector.list_resources("a") == []
    assert connector.remove_abandoned() == []


# ---------------------------------------------------------------------- crashes


ENOSPC, EIO = 28, 5
NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """Open to all users; in memory where there is such a folder, since processes are killed here,
    no power is cut.
    """
    with tempfile.TemporaryDirectory(
        prefix="data_stack-records-", dir=folder_in_memory()
    ) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("kind", ["columns", "sequences"])
@pytest.mark.parametrize(
    ("actions", "n_points"),
    [
        ([{"action": action} for action in ("kill", "torn", "killafter")], 4),
        ([{"action": "error", "error": error, "sticky": True} for error in (ENOSPC, EIO)], 3),
    ],
    ids=["killed", "refused"],
)
def test_a_dataset_is_resumed_after_a_fault_at_any_call(
    processes: Harness, folder: Path, kind: str, actions: list[dict[str, Any]], n_points: int
) -> None:
    whole = folder / "whole"
    n_calls = processes.run(
        "fault_records:write", str(whole), kind, str(folder / "n"), fault=Fault(str(whole))
    ).hits
    assert n_calls > 30

    for number, at in enumerate(spread(n_calls, sized(n_points, 2_000))):
        for action in [
            actions[(number + more) % len(actions)] for more in range(sized(1, len(actions)))
        ]:
            is_killed, dataset, acknowledged = (
                action["action"] != "error",
                folder / "dataset",
                folder / "said",
            )
            acknowledged.unlink(missing_ok=True)
            fault = Fault(str(dataset), at=at, **action)
            outcome = processes.run(
                "fault_records:write",
                str(dataset),
                kind,
                str(acknowledged),
                fault=fault,
                look_for_left=not is_killed,
            )
            assert (
                outcome.was_killed if is_killed else outcome.own or files(dataset) == files(whole)
            ), outcome
            assert is_killed or outcome.left == [], outcome
            # Whatever lies there is samples from the first on, or an error of ours.
            with contextlib.suppress(DataStackError), records.open(dataset) as reader:
                assert_same(list(reader), [sample(kind, i) for i in range(len(reader))])

            found = fault_records.write(str(dataset), kind, str(folder / "n"))

            assert found >= int((acknowledged.read_text() if acknowledged.exists() else "") or "0")
            assert files(dataset) == files(whole)
            with RecordReader(dataset) as reader:
                reader.verify()
            shutil.rmtree(dataset)


def test_a_folder_that_cannot_be_written_is_our_error(processes: Harness, folder: Path) -> None:
    append_all(RecordWriter(folder / "dataset", SPECS["columns"]), [sample("columns", 0)])
    (folder / "dataset").chmod(0o555)
    for path in (folder / "dataset").iterdir():
        path.chmod(0o444)
    user = NOBODY if os.geteuid() == 0 else None

    outcome = processes.run(
        "fault_records:write_where_nothing_can_be_written", str(folder / "dataset"), user=user
    )

    (folder / "dataset").chmod(0o755)
    assert len(outcome.value) == 2, outcome
    assert all(
        said.startswith("StorageError: could not ") and "ermission denied" in said
        for said in outcome.value
    )


def test_a_second_writer_is_refused_until_the_first_has_ended(
    processes: Harness, folder: Path
) -> None:
    process = processes.start("fault_records:hold", str(folder / "dataset"), str(folder / "ready"))
    assert until((folder / "ready").exists)

    with pytest.raises(StorageConflictError, match="another writer has the record dataset"):
        RecordWriter(folder / "dataset", SPECS["columns"])
    process.kill()
    process.wait()
    with RecordWriter(folder / "dataset", SPECS["columns"]) as writer:
        assert len(writer) == 1


def test_a_fork_neither_writes_nor_unlocks(folder: Path) -> None:
    said, is_free, on_disk, n_samples = fault_records.fork_with_an_open_writer(
        str(folder / "dataset")
    )

    assert "the parent process" in said
    assert (is_free, on_disk, n_samples) == (False, 0, 6)
    with RecordReader(folder / "dataset") as reader:
        assert_same([reader[i] for i in range(6)], [sample("columns", i) for i in range(6)])


def test_a_forgotten_writer_leaves_no_thread_and_no_lock(processes: Harness, folder: Path) -> None:
    outcome = processes.run("fault_records:forget", str(folder / "dataset"), look_for_left=True)

    assert (outcome.value, outcome.left, outcome.output) == ([0, True], [], "")
