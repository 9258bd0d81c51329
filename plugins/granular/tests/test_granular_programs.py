"""Programs of Granular with the import replaced: files, values, draws of sources and states of loaders are those of Granular."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import data_stack_granular as ours
import granular
import numpy as np
import numpy.typing as npt
import pytest
from granular_fixtures import expected_of
from writing import append_all, files_of

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats import records

SMALL = {"foo": "utf8", "bar": "int"}


def small(i: int) -> dict[str, Any]:
    return {"foo": f"value{i}", "bar": i}


def write(
    module: Any,
    folder: Path,
    spec: Mapping[str, str] = SMALL,
    make: Any = small,
    numbers: range = range(5),
) -> Path:
    with module.DatasetWriter(folder, spec, module.encoders) as writer:
        for i in numbers:
            assert writer.append(make(i)) == i
    return folder


def test_files_are_granulars_byte_for_byte_images_too(tmp_path: Path) -> None:
    expected = expected_of("small_new")
    spec = {**expected["spec"], "grey": "jpg"}
    samples = [{**each, "grey": each["abc"][:, :, 0]} for each in expected["decoded"]]

    for module, name in ((ours, "ours"), (granular, "theirs")):
        write(module, tmp_path / name, spec, samples.__getitem__)

    assert files_of(tmp_path / "ours") == files_of(tmp_path / "theirs")
    with (
        ours.DatasetReader(tmp_path / "theirs", ours.decoders) as reader,
        granular.DatasetReader(tmp_path / "ours", granular.decoders) as theirs,
    ):
        assert reader.size == theirs.size
        assert reader.spec == theirs.spec
        for i in range(5):
            for key, value in theirs[i].items():
                np.testing.assert_equal(reader[i][key], value)
    with (
        ours.DatasetReader(str(tmp_path / "theirs"), None) as raw,
        granular.DatasetReader(tmp_path / "ours", None) as theirs,
    ):
        assert raw[0:5] == theirs[0:5]


@pytest.mark.parametrize("error", [IndexError, StopIteration])
def test_a_decoder_that_fails_ends_no_loop(tmp_path: Path, error: type[Exception]) -> None:
    def decode(data: Any) -> Any:
        if bytes(data) == b"value3":
            raise error
        return bytes(data)

    folder = write(ours, tmp_path / "data")

    with ours.DatasetReader(folder, {**ours.decoders, "utf8": decode}) as reader:
        assert [reader[i]["bar"] for i in range(3)] == [0, 1, 2]
        for loop in (iter, reversed):
            with pytest.raises((DatasetFileCorruptError, RuntimeError, IndexError)):
                list(loop(reader))


def test_readers_are_iterated_in_both_directions(tmp_path: Path) -> None:
    with ours.DatasetReader(write(ours, tmp_path / "data"), ours.decoders) as reader:
        assert [each["bar"] for each in reader] == [0, 1, 2, 3, 4]
        assert [each["bar"] for each in reversed(reader)] == [4, 3, 2, 1, 0]


def test_a_source_that_stops_iteration_ends_no_loader() -> None:
    loader = ours.Loader(lambda step: next(iter(())), 2, workers=0, shard_id=0, num_shards=1)

    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(loader)


@pytest.mark.parametrize("sharded", [False, True])
def test_slices_are_dicts_of_lists(tmp_path: Path, sharded: bool) -> None:
    if sharded:
        with ours.ShardedDatasetWriter(
            tmp_path / "data", SMALL, ours.encoders, shardlen=3
        ) as writer:
            for i in range(10):
                writer.append(small(i))
    else:
        write(ours, tmp_path / "data", numbers=range(10))
    make = ours.ShardedDatasetReader if sharded else ours.DatasetReader

    with make(tmp_path / "data", ours.decoders, cache_keys=["foo"], parallel=True) as reader:
        copied, pickled = reader.copy(), pickle.loads(pickle.dumps(reader))
        for each in (reader, copied, pickled):
            assert each[2:5] == {"bar": [2, 3, 4], "foo": ["value2", "value3", "value4"]}
            assert each[range(8, 12), ["foo"]] == {"foo": ["value8", "value9"]}
            assert each[4:4] == {"bar": [], "foo": []}
            assert each[np.int64(7), ("bar",)] == {"bar": 7}
            assert list(each[3, ("foo", "bar")]) == ["foo", "bar"]
            assert each[3, ()] == each[0:3, ()] == {}
        copied.close()
        assert reader[9] == small(9)
        with pytest.raises(IndexError):
            reader[10]
        with pytest.raises(ConfigError, match="step 1"):
            reader[0:6:2]
        with pytest.raises(ConfigError, match="fo"):
            reader[0, ("fo",)]
    with pytest.raises(ConfigError, match="cache_keys"):
        make(tmp_path / "data", ours.decoders, cache_keys=["nothing"])
    with pytest.raises(FileNotFoundError):
        make(tmp_path / "nowhere", ours.decoders)
    with pytest.raises(KeyError):
        make(tmp_path / "data", {})


def test_a_reader_that_follows_sees_what_was_flushed(tmp_path: Path) -> None:
    with ours.DatasetWriter(tmp_path / "data", SMALL, ours.encoders) as writer:
        for i in range(3):
            writer.append(small(i))
            with ours.DatasetReader(tmp_path / "data", ours.decoders) as reader:
                assert len(reader) == i + 1
                assert reader[i] == small(i)
        writer.append(small(3), flush=False)
        with ours.DatasetReader(tmp_path / "data", ours.decoders) as reader:
            assert len(reader) == 3
        writer.flush()
        with granular.DatasetReader(tmp_path / "data", granular.decoders) as theirs:
            assert len(theirs) == 4


def test_a_writer_goes_on_where_one_was_interrupted(tmp_path: Path) -> None:
    folder = write(ours, tmp_path / "data")
    append_all(granular.BagWriter(folder / "foo.bag"), [b"value5"])
    with (folder / "bar.idx").open("ab") as torn:
        torn.write(b"\x01")

    with ours.DatasetWriter(folder, SMALL, ours.encoders) as writer:
        assert len(writer) == 5
        with pytest.raises(ValueError, match="Record mismatch"):
            writer.append({"foo": "wrong", "bar": 5})
        with pytest.raises(TypeError):
            writer.append({"foo": "value5", "bar": "no integer"})  # nothing of it is appended
        for i in range(5, 8):
            writer.append(small(i))

    assert files_of(folder) == files_of(write(granular, tmp_path / "whole", numbers=range(8)))
    with pytest.raises(ConfigError, match="columns"):
        ours.DatasetWriter(folder, {"foo": "utf8"}, ours.encoders)


def test_two_writers_do_not_mix_their_records(tmp_path: Path) -> None:
    first, second = ours.BagWriter(tmp_path / "x.bag"), ours.BagWriter(tmp_path / "x.bag")
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


def test_what_is_appended_to_a_dataset_of_data_stack_gets_a_manifest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append_all(records.RecordWriter(tmp_path / "data", SMALL), (small(i) for i in range(5)))

    append_all(ours.DatasetWriter(tmp_path / "data", SMALL, ours.encoders), [small(5)])

    with records.RecordReader(tmp_path / "data") as reader:
        assert [each["bar"] for each in reader] == list(range(6))
        assert reader.manifest is not None
    assert caplog.text == ""
    with records.RecordWriter(tmp_path / "data", SMALL) as writer:
        writer.append(small(6), flush=True)
        with pytest.raises(ConfigError, match="RecordWriter"):
            ours.DatasetWriter(tmp_path / "data", SMALL, ours.encoders)


def test_shards_are_gone_on_with(tmp_path: Path) -> None:
    def writer() -> ours.ShardedDatasetWriter:
        return ours.ShardedDatasetWriter(
            tmp_path / "data", SMALL, ours.encoders, 3, shardstart=0, shardstep=1
        )

    with writer() as first:
        for i in range(4):
            assert first.append(small(i)) == i
    with writer() as second:
        assert (len(second), second.shards, second.shardnum) == (4, 2, 1)
        for i in range(4, 6):
            second.append(small(i), flush=False)
        assert second.shardnum == 2
    with pytest.raises(ConfigError, match="closed"):
        second.append(small(6))

    with granular.ShardedDatasetReader(tmp_path / "data", granular.decoders) as theirs:
        assert (len(theirs), theirs.shards, theirs.size) == (6, 2, second.size)
    with ours.ShardedDatasetReader(
        tmp_path / "data", ours.decoders, shardstart=1, shardstep=2
    ) as odd:
        assert odd[0:3] == {"bar": [3, 4, 5], "foo": ["value3", "value4", "value5"]}
    with pytest.raises(ConfigError, match="shardlen"):
        ours.ShardedDatasetWriter(tmp_path / "more", SMALL, ours.encoders, shardstep=2)


def test_a_bag_is_read_from_a_path_or_bytes_and_damage_is_told(tmp_path: Path) -> None:
    with ours.BagWriter(str(tmp_path / "x.bag")) as writer:
        for record in (b"hello", b"", b"world"):
            writer.append(record)
    bag, idx = (tmp_path / "x.bag").read_bytes(), (tmp_path / "x.idx").read_bytes()
    (tmp_path / "old.bag").write_bytes(bag + idx)

    for reader in (
        ours.BagReader(tmp_path / "x.bag", cache_index=False),
        ours.BagReader(bag, idx),
        ours.BagReader(str(tmp_path / "old.bag"), single_file=True),
    ):
        with reader, pickle.loads(pickle.dumps(reader)) as again, reader.copy() as copied:
            assert reader[range(9)] == again[0:3] == [b"hello", b"", b"world"]
            assert (len(copied), copied.size, copied[2]) == (3, 34, b"world")
        with pytest.raises(IndexError):
            reader[0]
    (tmp_path / "x.idx").write_bytes(idx[:8] + b"\xff" * 8 + idx[16:])
    with pytest.raises(DatasetFileCorruptError):
        ours.BagReader(tmp_path / "x.bag")[1]
    with pytest.raises(ConfigError, match="is a URL"):
        ours.DatasetWriter("s3://bucket/data", SMALL, ours.encoders)


# ---------------------------------------------------------------------- loading


DATA = [{"foo": i, "bar": np.full((2, 3), i, np.float32)} for i in range(10)]


def doubled(datapoint: dict[str, Any], seed: list[int]) -> dict[str, Any]:
    return {"foo": 2 * datapoint["foo"], "draw": np.random.default_rng(seed).random()}


def stacked(module: Any, seed: int) -> Any:
    sources = module.sources
    epochs = sources.Epochs(DATA, shuffle=True)
    mixed = sources.Mix([epochs, sources.Sample(DATA, 7, seed)], [1, 3], seed)
    return sources.Transform(
        sources.Interleave([mixed, sources.Truncate(DATA, 4), DATA.__getitem__]), doubled, seed
    )


@pytest.mark.parametrize("seed", [0, 7])
def test_sources_draw_what_granulars_draw(seed: int) -> None:
    assert [stacked(ours, seed)(step) for step in range(30)] == [
        stacked(granular, seed)(step) for step in range(30)
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_go_on_from_a_state(workers: int) -> None:
    source = ours.sources.Epochs(DATA, shuffle=False)
    loader = ours.Loader(source, 4, workers=workers, recycle_after=2)
    assert loader.spec == {"foo": (np.dtype(np.int64), ()), "bar": (np.dtype(np.float32), (2, 3))}
    batches = iter(loader)
    first = [next(batches) for _ in range(3)]
    state = json.loads(json.dumps(batches.save()))
    expected = [next(batches)["foo"].tolist() for _ in range(2)]
    batches.load(state)
    again = [next(batches)["foo"].tolist() for _ in range(2)]
    batches.close()

    assert first[2]["foo"].tolist() == [8, 9, 0, 1]
    assert first[0]["bar"].shape == (4, 2, 3)
    assert state == {"step": 12}
    assert again == expected == [[2, 3, 4, 5], [6, 7, 8, 9]]
    assert loader.consumed == 20


def test_ranks_share_the_steps_as_granulars_do() -> None:
    loaders = [ours.Loader(DATA, 2, workers=0, shard_id=rank, num_shards=2) for rank in range(2)]
    for loader in loaders:
        loader.load({"step": 4})

    assert [batch["foo"].tolist() for batch in next(zip(*loaders, strict=True))] == [[4, 5], [6, 7]]
    assert [loader.save() for loader in loaders] == [{"step": 8}, {"step": 8}]


def changing(step: int) -> dict[str, npt.NDArray[Any]]:
    return {
        "x": np.zeros(3) if step % 4 < 3 else np.zeros(4),
        "y": np.float32(step) if step < 4 else np.int8(step),
    }


def test_errors_are_runtime_errors_and_dtypes_those_of_the_spec() -> None:
    with pytest.raises(RuntimeError, match="sample 3 could"):
        next(ours.Loader({i: DATA[i] for i in range(3)}.__getitem__, 4, workers=0))
    with pytest.raises(RuntimeError, match="dicts"):
        next(ours.Loader(lambda step: 5, 4, workers=0))
    with pytest.raises(RuntimeError):
        next(ours.Loader(changing, 4, workers=0))
    loader = ours.Loader(lambda step: {"y": changing(step)["y"]}, 4, workers=0)

    assert [next(loader)["y"].dtype, next(loader)["y"].dtype] == [np.float32, np.float32]
    with pytest.raises(RuntimeError, match="datapoint 0"):
        list(
            zip(
                ours.Loader(lambda step: {"y": 1 if step < 2 else 1.5}, 2, workers=0),
                range(2),
                strict=False,
            )
        )


@pytest.mark.parametrize("source", ["digits", {"train": DATA}, 3])
def test_what_is_not_a_source_is_refused(source: Any) -> None:
    with pytest.raises(TypeError, match="expected a source, a function of a step"):
        ours.Loader(source, 2, workers=0)
