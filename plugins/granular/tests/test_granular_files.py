"""Programs of Granular that read and write files, with the import replaced."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import data_stack_granular as ours
import granular
import numpy as np
import pytest
from granular_fixtures import expected_of
from writing import append_all, files_of

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats import records

SPEC = {"foo": "utf8", "bar": "int"}

#: The records of the bag that :func:`bag_files` writes.
RECORDS = [b"hello", b"", b"world"]


def datapoint(number: int) -> dict[str, Any]:
    """Return a datapoint of :data:`SPEC`."""
    return {"foo": f"value{number}", "bar": number}


def write(
    module: Any,
    folder: Path,
    spec: Mapping[str, str] = SPEC,
    make: Callable[[int], dict[str, Any]] = datapoint,
    *,
    length: int = 5,
) -> Path:
    """Write a dataset by ``ours`` or by ``granular``."""
    with module.DatasetWriter(folder, spec, module.encoders) as writer:
        for number in range(length):
            assert writer.append(make(number)) == number
    return folder


# ------------------------------------------------------------------ bags


def write_bag(folder: Path) -> tuple[bytes, bytes]:
    """Write :data:`RECORDS` to ``x.bag``; return the bytes of the bag and of its index."""
    with ours.BagWriter(str(folder / "x.bag")) as writer:
        for record in RECORDS:
            writer.append(record)
    return (folder / "x.bag").read_bytes(), (folder / "x.idx").read_bytes()


def open_by_path(folder: Path) -> ours.BagReader:
    write_bag(folder)
    return ours.BagReader(folder / "x.bag", cache_index=False)


def open_bytes(folder: Path) -> ours.BagReader:
    return ours.BagReader(*write_bag(folder))


def open_single_file(folder: Path) -> ours.BagReader:
    bag, idx = write_bag(folder)
    (folder / "old.bag").write_bytes(bag + idx)
    return ours.BagReader(str(folder / "old.bag"), single_file=True)


@pytest.mark.parametrize("open_bag", [open_by_path, open_bytes, open_single_file])
def test_a_bag_is_read_from_each_source(
    tmp_path: Path, open_bag: Callable[[Path], ours.BagReader]
) -> None:
    reader = open_bag(tmp_path)

    with reader, pickle.loads(pickle.dumps(reader)) as pickled, reader.copy() as copied:
        assert reader[range(9)] == RECORDS
        assert pickled[0:3] == RECORDS
        assert copied[2] == b"world"
        assert copied[-3] == b"hello"
        assert len(copied) == 3
        assert copied.size == len(b"helloworld") + 3 * 8
    with pytest.raises(IndexError):
        reader[0]


def test_a_damaged_index_is_reported(tmp_path: Path) -> None:
    _, idx = write_bag(tmp_path)
    (tmp_path / "x.idx").write_bytes(idx[:8] + b"\xff" * 8 + idx[16:])

    with pytest.raises(DatasetFileCorruptError):
        ours.BagReader(tmp_path / "x.bag")[1]


def test_a_truncated_bag_is_not_written_to(tmp_path: Path) -> None:
    bag, _ = write_bag(tmp_path)
    (tmp_path / "x.bag").write_bytes(bag[:-1])

    with pytest.raises(DatasetFileCorruptError, match="truncated"):
        ours.BagWriter(tmp_path / "x.bag")


def test_a_dataset_with_a_truncated_bag_is_not_written_to(tmp_path: Path) -> None:
    folder = write(ours, tmp_path / "data")
    (folder / "foo.bag").write_bytes(b"")

    with pytest.raises(DatasetFileCorruptError, match="truncated"):
        ours.DatasetWriter(folder, SPEC, ours.encoders)


def test_urls_are_not_written_to() -> None:
    with pytest.raises(ConfigError, match="is a URL"):
        ours.DatasetWriter("s3://bucket/data", SPEC, ours.encoders)


def test_two_writers_do_not_mix_their_records(tmp_path: Path) -> None:
    first = ours.BagWriter(tmp_path / "x.bag")
    second = ours.BagWriter(tmp_path / "x.bag")
    first.append(b"one")
    with pytest.raises(ConfigError, match="another writer"):
        second.append(b"two")

    with ours.BagReader(tmp_path / "x.bag") as reader:
        assert reader[0:9] == [b"one"]
    with pytest.raises(ConfigError, match="takes"):
        first.append("text")
    first.close()
    with pytest.raises(ConfigError, match="another writer"):
        second.close()


# ------------------------------------------------------------------ datasets


def test_files_are_those_of_granular_byte_for_byte(tmp_path: Path) -> None:
    expected = expected_of("small_new")
    spec = {**expected["spec"], "grey": "jpg"}
    samples = [{**sample, "grey": sample["abc"][:, :, 0]} for sample in expected["decoded"]]

    write(ours, tmp_path / "ours", spec, samples.__getitem__)
    write(granular, tmp_path / "theirs", spec, samples.__getitem__)

    assert files_of(tmp_path / "ours") == files_of(tmp_path / "theirs")
    with (
        ours.DatasetReader(tmp_path / "theirs", ours.decoders) as reader,
        granular.DatasetReader(tmp_path / "ours", granular.decoders) as theirs,
    ):
        assert reader.size == theirs.size
        assert reader.spec == theirs.spec
        for number in range(5):
            for key, value in theirs[number].items():
                np.testing.assert_equal(reader[number][key], value)
    with (
        ours.DatasetReader(str(tmp_path / "theirs"), None) as raw_reader,
        granular.DatasetReader(tmp_path / "ours", None) as raw_theirs,
    ):
        assert raw_reader[0:5] == raw_theirs[0:5]


@pytest.mark.parametrize("error", [IndexError, StopIteration])
def test_a_decoder_that_fails_ends_no_loop(tmp_path: Path, error: type[Exception]) -> None:
    def decode(data: Any) -> Any:
        if bytes(data) == b"value3":
            raise error
        return bytes(data)

    folder = write(ours, tmp_path / "data")

    with ours.DatasetReader(folder, {**ours.decoders, "utf8": decode}) as reader:
        assert [reader[number]["bar"] for number in range(3)] == [0, 1, 2]
        for loop in (iter, reversed):
            with pytest.raises((DatasetFileCorruptError, RuntimeError, IndexError)):
                list(loop(reader))


def test_readers_are_iterated_in_both_directions(tmp_path: Path) -> None:
    with ours.DatasetReader(write(ours, tmp_path / "data"), ours.decoders) as reader:
        assert [sample["bar"] for sample in reader] == [0, 1, 2, 3, 4]
        assert [sample["bar"] for sample in reversed(reader)] == [4, 3, 2, 1, 0]


def write_ten(folder: Path, *, sharded: bool) -> Callable[..., Any]:
    """Write ten datapoints; return the class that reads them."""
    if not sharded:
        write(ours, folder, length=10)
        return ours.DatasetReader
    with ours.ShardedDatasetWriter(folder, SPEC, ours.encoders, shardlen=3) as writer:
        for number in range(10):
            writer.append(datapoint(number))
    return ours.ShardedDatasetReader


@pytest.mark.parametrize("sharded", [False, True])
def test_parts_of_a_dataset_are_read(tmp_path: Path, sharded: bool) -> None:
    open_reader = write_ten(tmp_path / "data", sharded=sharded)

    with open_reader(tmp_path / "data", ours.decoders, cache_keys=["foo"], parallel=True) as first:
        copied = first.copy()
        for reader in (first, copied, pickle.loads(pickle.dumps(first))):
            assert reader[2:5] == {"bar": [2, 3, 4], "foo": ["value2", "value3", "value4"]}
            assert reader[range(8, 12), ["foo"]] == {"foo": ["value8", "value9"]}
            assert reader[4:4] == {"bar": [], "foo": []}
            assert reader[np.int64(7), ("bar",)] == {"bar": 7}
            assert list(reader[3, ("foo", "bar")]) == ["foo", "bar"]
            assert reader[3, ()] == {}
            assert reader[0:3, ()] == {}
        copied.close()
        assert first[9] == datapoint(9)


@pytest.mark.parametrize("sharded", [False, True])
def test_parts_that_do_not_exist_are_refused(tmp_path: Path, sharded: bool) -> None:
    open_reader = write_ten(tmp_path / "data", sharded=sharded)

    with open_reader(tmp_path / "data", ours.decoders) as reader:
        with pytest.raises(IndexError):
            reader[10]
        with pytest.raises(ConfigError, match="step 1"):
            reader[0:6:2]
        with pytest.raises(ConfigError, match="no negative positions"):
            reader[-2:6]
        with pytest.raises(ConfigError, match="fo"):
            reader[0, ("fo",)]


@pytest.mark.parametrize("sharded", [False, True])
def test_readers_check_their_arguments(tmp_path: Path, sharded: bool) -> None:
    open_reader = write_ten(tmp_path / "data", sharded=sharded)

    with pytest.raises(ConfigError, match="cache_keys"):
        open_reader(tmp_path / "data", ours.decoders, cache_keys=["nothing"])
    with pytest.raises(FileNotFoundError):
        open_reader(tmp_path / "nowhere", ours.decoders)
    with pytest.raises(KeyError):
        open_reader(tmp_path / "data", {})


def test_a_writer_that_fails_closes_all_its_files(tmp_path: Path) -> None:
    writer = ours.DatasetWriter(tmp_path / "data", SPEC, ours.encoders)
    writer.append(datapoint(0), flush=False)
    first_column, *other_columns = writer.writers.values()
    first_column.idx.close()  # so that the column cannot be written

    with pytest.raises(ValueError, match="closed file"):
        writer.close()

    assert writer.closed
    assert first_column.bag.closed
    for column in other_columns:
        assert column.bag.closed
        assert column.idx.closed
    writer.close()


def test_a_closed_bag_takes_no_records(tmp_path: Path) -> None:
    with ours.BagWriter(tmp_path / "x.bag") as writer:
        writer.append(b"a")

    with pytest.raises(ConfigError, match=r"x\.bag is closed: open it again"):
        writer.append(b"b")


def test_readers_see_what_was_flushed(tmp_path: Path) -> None:
    with ours.DatasetWriter(tmp_path / "data", SPEC, ours.encoders) as writer:
        for number in range(3):
            writer.append(datapoint(number))
            with ours.DatasetReader(tmp_path / "data", ours.decoders) as reader:
                assert len(reader) == number + 1
                assert reader[number] == datapoint(number)
        writer.append(datapoint(3), flush=False)
        with ours.DatasetReader(tmp_path / "data", ours.decoders) as reader:
            assert len(reader) == 3
        writer.flush()
        with granular.DatasetReader(tmp_path / "data", granular.decoders) as theirs:
            assert len(theirs) == 4


def interrupt_writer(folder: Path) -> None:
    """Leave a column with one more value, and another one with a part of an entry."""
    append_all(granular.BagWriter(folder / "foo.bag"), [b"value5"])
    with (folder / "bar.idx").open("ab") as index:
        index.write(b"\x01")


def test_a_writer_resumes_an_interrupted_one(tmp_path: Path) -> None:
    folder = write(ours, tmp_path / "data")
    interrupt_writer(folder)

    with ours.DatasetWriter(folder, SPEC, ours.encoders) as writer:
        assert len(writer) == 5
        for number in range(5, 8):
            writer.append(datapoint(number))

    assert files_of(folder) == files_of(write(granular, tmp_path / "whole", length=8))


def test_a_writer_refuses_other_values_than_an_interrupted_one(tmp_path: Path) -> None:
    folder = write(ours, tmp_path / "data")
    interrupt_writer(folder)

    with ours.DatasetWriter(folder, SPEC, ours.encoders) as writer:
        with pytest.raises(ValueError, match="Record mismatch"):
            writer.append({"foo": "wrong", "bar": 5})


def test_a_datapoint_that_is_refused_leaves_nothing(tmp_path: Path) -> None:
    folder = write(ours, tmp_path / "data")
    before = files_of(folder)

    with ours.DatasetWriter(folder, SPEC, ours.encoders) as writer:
        with pytest.raises(TypeError):
            writer.append({"foo": "value5", "bar": "no integer"})
        with pytest.raises(ConfigError, match="takes dicts with the keys bar, foo"):
            writer.append({"foo": "value5"})
    with ours.DatasetWriter(folder, SPEC, None) as writer:
        with pytest.raises(ConfigError, match="column 'bar' of type 'int' takes bytes"):
            writer.append({"foo": b"value5", "bar": 5})
    with pytest.raises(ConfigError, match="is closed"):
        writer.append({"foo": b"value5", "bar": b"\x05"})

    assert files_of(folder) == before


def test_a_dataset_with_other_columns_is_not_written_to(tmp_path: Path) -> None:
    folder = write(ours, tmp_path / "data")

    with pytest.raises(ConfigError, match="columns"):
        ours.DatasetWriter(folder, {"foo": "utf8"}, ours.encoders)


def test_appending_to_a_dataset_of_data_stack_updates_its_manifest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first_samples = [datapoint(number) for number in range(5)]
    append_all(records.RecordWriter(tmp_path / "data", SPEC), first_samples)

    append_all(ours.DatasetWriter(tmp_path / "data", SPEC, ours.encoders), [datapoint(5)])

    with records.RecordReader(tmp_path / "data") as reader:
        assert [sample["bar"] for sample in reader] == list(range(6))
        assert reader.manifest is not None
    assert caplog.text == ""


def test_an_unfinished_dataset_of_data_stack_is_refused(tmp_path: Path) -> None:
    with records.RecordWriter(tmp_path / "data", SPEC) as writer:
        writer.append(datapoint(6), flush=True)

        with pytest.raises(ConfigError, match="RecordWriter"):
            ours.DatasetWriter(tmp_path / "data", SPEC, ours.encoders)


# ------------------------------------------------------------------ shards


def test_a_writer_of_shards_resumes(tmp_path: Path) -> None:
    def open_writer() -> ours.ShardedDatasetWriter:
        return ours.ShardedDatasetWriter(
            tmp_path / "data", SPEC, ours.encoders, 3, shardstart=0, shardstep=1
        )

    with open_writer() as first:
        for number in range(4):
            assert first.append(datapoint(number)) == number
    with open_writer() as second:
        assert len(second) == 4
        assert second.shards == 2
        assert second.shardnum == 1
        for number in range(4, 6):
            second.append(datapoint(number), flush=False)
        assert second.shardnum == 2
    with pytest.raises(ConfigError, match="closed"):
        second.append(datapoint(6))

    with granular.ShardedDatasetReader(tmp_path / "data", granular.decoders) as theirs:
        assert len(theirs) == 6
        assert theirs.shards == 2
        assert theirs.size == second.size


def test_some_shards_are_read_alone(tmp_path: Path) -> None:
    open_reader = write_ten(tmp_path / "data", sharded=True)

    with open_reader(tmp_path / "data", ours.decoders, shardstart=1, shardstep=2) as reader:
        assert reader.shards == 2
        assert reader[0:4]["bar"] == [3, 4, 5, 9]


def test_several_writers_of_shards_need_their_length(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="shardlen"):
        ours.ShardedDatasetWriter(tmp_path / "more", SPEC, ours.encoders, shardstep=2)
