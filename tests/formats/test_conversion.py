"""Conversion between formats: what was there comes back, from folders and stores, or an error says
why not.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archives import tar_of
from writing import append_all, image_bytes

import data_stack
from data_stack.dataset.iterator import (
    DatasetIterator,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import MetaFactory
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats import records
from data_stack.formats.builtin.npz import NpzFormat
from data_stack.formats.conversion import convert
from data_stack.formats.records import ColumnType
from data_stack.formats.registry import writable_formats
from data_stack.io.folder import folder_of
from data_stack.io.resources import ResourceFactory
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.values.digests import sample_digest

#: The formats in which the columns come back under their names.
FORMATS = [name for name, format_ in writable_formats().items() if format_.keeps_names]

N = 23
SPEC: dict[str, str | ColumnType] = {
    "image": "jpg",
    "x": ColumnType("array", "float32", (4,)),
    "label": "i64",
    "text": "utf8",
    "weight": ColumnType("array", "float64", ()),
    "flag": ColumnType("array", "bool", ()),
    "raw": "bytes",
    "meta": "json",
    "pack": "msgpack",
    "tree": "tree",
    "ragged": "array",
    "small": "zstd(utf8)",
    "count": "u64",
}
#: What each format can represent of these.
COLUMNS: Mapping[str, str] = {
    "hdf5": "image,x,label,text,weight,flag,count",
    "npz": "image,x,label,text,weight,flag,count",
    "torch": "image,x,label,weight,flag,count",
    "images": "image,label,text,weight,flag,meta",
    "csv": "label,weight,flag,small,count",
    "jsonl": "x,label,text,weight,flag,meta,small,count",
}
NAMES = {
    "webdataset": "out.tar",
    "hdf5": "out.h5",
    "npz": "out.npz",
    "torch": "out.pt",
    "arrow": "out.arrow",
    "parquet": "out.parquet",
    "csv": "out.csv",
    "jsonl": "out.jsonl",
}


def jpg(seed: int, size: tuple[int, int] = (6, 7)) -> bytes:
    return image_bytes(
        np.random.default_rng(seed).integers(0, 255, (*size, 3), dtype=np.uint8), "JPEG"
    )


def sample(i: int) -> dict[str, Any]:
    return {
        "image": jpg(i),
        "x": np.arange(4, dtype=np.float32) / (i + 1),
        "label": i - 5,
        "text": "ü" * i,
        "weight": np.float64(i / 3),
        "flag": np.bool_(i % 2),
        "raw": bytes([0, i, 0]),
        "meta": {"a": [i, None, "x"]},
        "pack": {"k": i, "b": b"\xff"},
        "tree": {"a": np.arange(i % 3), "b": [1.5]},
        "ragged": np.arange(i, dtype=np.int16),
        "small": f"z{i}",
        "count": i,
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written") / "source"
    append_all(records.RecordWriter(folder, SPEC), (sample(i) for i in range(N)))
    return folder


@pytest.fixture
def source(tmp_path: Path, written: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "source"))


def samples(path: Any, columns: str | None = None) -> list[Any]:
    with records.open(path, columns=None if columns is None else columns.split(",")) as reader:
        return [sample_digest(each) for each in reader]


# ------------------------------------------------------------------ there and back


@pytest.mark.parametrize("kind", FORMATS)
def test_records_come_back_unchanged_from_every_format(
    tmp_path: Path, source: Path, kind: str
) -> None:
    there, store = tmp_path / NAMES.get(kind, "out"), InMemoryStorageConnector()

    written = convert(source, there, target_format=kind, columns=COLUMNS.get(kind))
    convert(there, (store, f"sets/{NAMES.get(kind, 'out')}"), target_format=kind)
    back = convert((store, f"sets/{NAMES.get(kind, 'out')}"), tmp_path / "back")

    assert (
        written.source_format,
        written.target_format,
        written.n_samples,
        written.n_verified,
    ) == ("records", kind, N, N)
    assert back.source_format == kind
    assert samples(tmp_path / "back", COLUMNS.get(kind)) == samples(source, COLUMNS.get(kind))
    assert not [name for name in os.listdir(tmp_path) if "part" in name or name.startswith(".")]


def test_files_are_copied_byte_by_byte_and_never_encoded_again(
    tmp_path: Path, source: Path
) -> None:
    convert(source, tmp_path / "a.tar")
    convert(tmp_path / "a.tar", tmp_path / "images", target_format="images", columns="image,label")
    convert(tmp_path / "images", tmp_path / "back")

    with records.open(tmp_path / "back", codecs={"jpg": None}) as reader:
        assert [each["image"] for each in reader] == [jpg(i) for i in range(N)]
    assert {file.suffix for file in (tmp_path / "images").rglob("0*") if file.is_file()} == {".jpg"}


def test_sequences_are_kept_by_records_alone(tmp_path: Path) -> None:
    spec = {"frames": "jpg[]", "label": "i64"}
    append_all(
        records.RecordWriter(tmp_path / "s", spec),
        ({"frames": [jpg(i)] * i, "label": i} for i in range(4)),
    )

    convert(tmp_path / "s", tmp_path / "again")

    assert samples(tmp_path / "again") == samples(tmp_path / "s")
    with pytest.raises(ConfigError, match="'frames' holds sequences"):
        convert(tmp_path / "s", tmp_path / "a.tar")
    assert convert(tmp_path / "s", tmp_path / "a.tar", columns="label").n_samples == 4


def test_an_empty_dataset_stays_one(tmp_path: Path) -> None:
    with records.RecordWriter(
        tmp_path / "s", {"x": ColumnType("array", "float32", (2,)), "label": "i64", "text": "utf8"}
    ):
        pass

    for name, columns in (
        ("a", None),
        ("a.tar", None),
        ("a.h5", None),
        ("a.npz", None),
        ("a.pt", "x,label"),
    ):
        report = convert(tmp_path / "s", tmp_path / name, columns=columns)

        assert report.n_samples == 0


@pytest.mark.parametrize("shardlen", [None, 5])
@pytest.mark.parametrize("kind", ["records", "parquet"])
def test_an_empty_table_is_written_with_its_columns(
    tmp_path: Path, kind: str, shardlen: int | None
) -> None:
    types = {
        "at": pa.time32("s"),
        "n": pa.int32(),
        "text": pa.string(),
        "x": pa.list_(pa.float32(), 2),
    }

    report = convert(
        data_stack.from_arrow(pa.schema(types).empty_table()),
        tmp_path / "a",
        target_format=kind,
        shardlen=shardlen,
    )
    convert(tmp_path / "a", tmp_path / "b", target_format=kind)

    assert (report.n_samples, report.columns) == (
        0,
        {"at": "npy", "n": "i64", "text": "utf8", "x": "array"},
    )
    for folder in "ab":
        opened: Any = data_stack.load(str(tmp_path / folder))
        found: Any = opened.read_batch([])
        shown = {name: (str(column.dtype), *column.shape) for name, column in found.items()}
        assert shown == {
            "at": ("timedelta64[s]", 0),
            "n": ("int32", 0),
            "text": ("object", 0),
            "x": ("float32", 0, 2),
        }


def test_times_become_types_of_parquet(tmp_path: Path) -> None:
    types = [
        pa.time32("s"),
        pa.time64("us"),
        pa.duration("s"),
        pa.date32(),
        pa.timestamp("us", "UTC"),
    ]
    cells = {
        f"t{each.id}": pa.array([1, 3], pa.int32() if each.bit_width == 32 else pa.int64()).view(
            each
        )
        for each in types
    }
    cells["z=1"] = pa.array([[1, 5], [2]], pa.list_(pa.int32())).cast(pa.list_(pa.time32("s")))
    iterator = data_stack.from_arrow(pa.table(cells))

    for source, target, kind in (
        (iterator, "a", "parquet"),
        ("a", "b", "parquet"),
        ("b", "c", "records"),
        ("c", "d", "parquet"),
    ):
        convert(
            tmp_path / source if isinstance(source, str) else source,
            tmp_path / target,
            target_format=kind,
        )

    of_a, of_b, of_d = (
        pq.read_schema(tmp_path / folder / "part-000000.parquet") for folder in "abd"
    )
    assert of_a.types == of_b.types == [pa.time32("ms"), *types[1:], pa.list_(pa.time32("ms"))]
    assert pa.duration("us") in of_d.types  # as numpy's times of day are
    assert list(map(sample_digest, data_stack.load(str(tmp_path / "d")))) == list(
        map(sample_digest, iterator)
    )


def test_columns_with_missing_values_are_of_parquets_own_types(tmp_path: Path) -> None:
    row = {
        "b": True,
        "s": "a",
        "y": b"x",
        "d": Decimal("1.10"),
        "l": [1, 2],
        "w": ["a"],
        "n": {"a": [[1]], "b": 0.5},
    }
    cells = pa.array([3, None, *[4] * 98])
    table = pa.Table.from_pylist([row, {}, *[row] * 98]).append_column("i", cells.cast(pa.int8()))
    table = table.append_column("t", cells.cast(pa.timestamp("us", "UTC")))
    iterator = data_stack.from_arrow(table)

    convert(iterator, tmp_path / "a", target_format="parquet")
    convert(tmp_path / "a", tmp_path / "b", target_format="parquet")
    convert(SequenceDatasetIterator([[b"x", None], [np.ones(2), None]]), tmp_path / "c")

    of_a, of_b = (
        pq.read_schema(tmp_path / folder / "part-000000.parquet").types for folder in "ab"
    )
    assert of_a == of_b == table.schema.types
    assert list(map(sample_digest, data_stack.load(str(tmp_path / "b")))) == list(
        map(sample_digest, iterator)
    )
    assert samples(tmp_path / "c")[1] == sample_digest({"column_0": None, "column_1": None})


# ------------------------------------------------------------------ other sources


def test_tuples_get_the_names_that_their_meta_gives_them(tmp_path: Path) -> None:
    iterator = SequenceDatasetIterator(
        [np.arange(12.0).reshape(4, 3), [3, 1, 2, 0], ["a", "b", "c", "d"]]
    )
    informed = InformedDatasetIterator(iterator, MetaFactory.get_dataset_meta(identifier="tiny"))

    report = convert(informed, tmp_path / "informed")
    convert(iterator, tmp_path / "plain.npz")
    convert(iterator, tmp_path / "named.h5", columns="x=0,y=column_1")

    assert (report.source, report.source_format, dict(report.columns)) == (
        "tiny",
        "iterator",
        {"sample": "array", "target": "i64", "tag": "utf8"},
    )
    assert samples(tmp_path / "informed") == [
        sample_digest({"sample": x, "target": y, "tag": tag}) for x, y, tag in iterator
    ]
    assert sorted(np.load(tmp_path / "plain.npz")) == ["column_0", "column_1", "column_2"]
    with h5py.File(tmp_path / "named.h5") as file:
        assert file["y"][()].tolist() == [3, 1, 2, 0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([object(), object()], "holds a object, which no format stores"),
        ([b"x", 1, None], "values of several types .bytes, i64, json"),
    ],
)
def test_values_that_no_format_stores_are_refused(
    tmp_path: Path, values: list[Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        convert(SequenceDatasetIterator([values]), tmp_path / "out")
    with pytest.raises(ConfigError, match="bare values"):
        convert(SequenceDatasetIterator([[1]]).map(lambda sample: 1), tmp_path / "out")
    with pytest.raises(ConfigError, match="no samples"):
        convert(SequenceDatasetIterator([[]]).map(tuple), tmp_path / "out")


# ------------------------------------------------------------------ what is refused


def test_values_of_different_shapes_are_refused_naming_the_column(tmp_path: Path) -> None:
    pictures = (jpg(i, (6, 7) if i != 33 else (5, 7)) for i in range(40))
    append_all(
        records.RecordWriter(tmp_path / "s", {"image": "jpg"}),
        ({"image": picture} for picture in pictures),
    )

    for name in ("a.h5", "a.npz", "a.pt"):
        with pytest.raises(ConfigError, match="column 'image': its values differ in shape"):
            convert(tmp_path / "s", tmp_path / name)

    assert sorted(os.listdir(tmp_path)) == ["s"]


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("a.h5", "meta", "'meta' is of type 'json', which hdf5 cannot hold"),
        ("a.pt", "text", "'text' is of type 'utf8', which torch"),
        ("a.h5", "nothing", "has no column 'nothing'"),
        ("a.h5", "a=", "new=old"),
        ("a.tar", "A=x", "field 'A.npy'"),
        ("a.h5", "..=x", "cannot be the path of an HDF5 dataset"),
        ("images", "x", "no column 'image'"),
        ("images", "image,raw", "'raw' .* JSON cannot hold"),
    ],
)
def test_what_a_format_cannot_hold_is_refused_before_writing(
    tmp_path: Path, source: Path, name: str, columns: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        convert(
            source,
            tmp_path / name,
            columns=columns,
            target_format=name if name == "images" else None,
        )

    assert os.listdir(tmp_path) == ["source"]


def test_formats_that_cannot_be_told_are_asked_for(tmp_path: Path, source: Path) -> None:
    (tmp_path / "both").mkdir()
    (tmp_path / "both/spec.json").write_text("{}")
    (tmp_path / "both/a.tar").touch()
    (tmp_path / "file").touch()

    for bad_source, bad_target, options, message in (
        (tmp_path / "both", tmp_path / "out", {}, "records and webdataset"),
        (tmp_path / "file", tmp_path / "out", {}, "format of .*file"),
        (tmp_path / "nowhere", tmp_path / "out", {}, "there is nothing at"),
        (source, tmp_path / "a.zip", {}, r"a\.zip"),
        (source, tmp_path / "a.bin", {}, r"a\.bin"),
        (source, tmp_path / "a.csv.gz", {}, r"a\.csv"),
        (source, tmp_path / "a.parqet", {}, r"did you mean '\.parquet'"),
        (source, source, {}, "source and target are both"),
        (source, tmp_path / "a.h5", {"shardlen": 3}, "hdf5 has no shards"),
        (source, tmp_path / "a.tar", {"shardlen": 3}, "give a folder for shards"),
        (source, 3, {}, "got 3"),
    ):
        with pytest.raises(ConfigError, match=message):
            convert(bad_source, bad_target, **cast("Any", options))


# ------------------------------------------------------------------ verification


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_there_already_is_never_overwritten(
    tmp_path: Path, source: Path, kind: str
) -> None:
    there = tmp_path / NAMES.get(kind, "out")
    convert(source, there, target_format=kind, columns=COLUMNS.get(kind), verify=False)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    with pytest.raises(ConfigError):
        convert(source, there, target_format=kind, columns=COLUMNS.get(kind))

    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_what_was_written_wrongly_is_named_by_sample_and_column(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = NpzFormat.save

    def changed(self: Any, file: Any, columns: Any) -> None:
        columns["label"][7] += 1
        write(self, file, columns)

    monkeypatch.setattr(NpzFormat, "save", changed)
    with pytest.raises(DatasetFileCorruptError, match=r"column 'label' of sample 7 differs"):
        convert(source, tmp_path / "out.npz", columns="label,x")
    assert os.listdir(tmp_path) == ["source"]


# ---------------------------------------------------------------------- interruptions


MANY = 120
TARGETS: dict[str, dict[str, Any]] = {
    "records": {"target": "out"},
    "shards of records": {"target": "out", "shardlen": 30},
    "webdataset": {"target": "out", "target_format": "webdataset", "shardlen": 30},
    "images": {"target": "out", "target_format": "images"},
    "parquet": {"target": "out", "target_format": "parquet", "shardlen": 30},
    **{name: {"target": name} for name in ("out.tar", "out.h5", "out.npz", "out.pt")},
}


class Pictures(DatasetIterator):
    """Small pictures with labels."""

    def __len__(self) -> int:
        return MANY

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "image": np.full((3, 4, 3), index % 256, np.uint8),
            "label": index % 7,
            "number": index,
        }


class Failing(Pictures):
    """Fails at a sample near the end."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __getitems__(self, indices: Any) -> list[Any]:
        if 110 in indices and len(indices) > 10:
            raise self.error("failed")
        return super().__getitems__(indices)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_stack.formats.conversion.batches._MAX_IN_BATCH", 100)
    monkeypatch.setenv("DATA_STACK_ISOLATION", "off")  # a process for each file of HDF5


@pytest.mark.parametrize(
    ("kind", "error"), [("records", ValueError), *((kind, KeyboardInterrupt) for kind in TARGETS)]
)
def test_what_was_not_finished_leaves_nothing(
    tmp_path: Path, kind: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_stack.formats.conversion.batches._MAX_IN_BATCH", 20)
    options = dict(TARGETS[kind])
    target = tmp_path / options.pop("target")
    with pytest.raises(error, match="failed"):
        convert(Failing(error), target, **options)
    assert os.listdir(tmp_path) == []

    store = InMemoryStorageConnector()
    store.set_resource(
        "sets/other", ResourceFactory.get_resource("sets/other", io.BytesIO(b"kept"))
    )
    with pytest.raises(error, match="failed"):
        convert(Failing(error), (store, f"sets/{target.name}"), **options)
    assert list(store.list_resources("")) == ["sets/other"]


def test_fields_of_shards_never_share_a_column(tmp_path: Path) -> None:
    files = {
        "s0.__key__.txt": b"x",
        "s0.a.txt": b"1",
        "s0.a.cls": b"2",
        "s0.a.txt.bin": b"3",
    }
    (tmp_path / "a.tar").write_bytes(tar_of(files, "w"))

    convert(tmp_path / "a.tar", tmp_path / "a.parquet")

    assert data_stack.load(tmp_path / "a.parquet")[0] == {
        "__key__": "s0",
        "__key__.txt": "x",
        "a.txt": "1",
        "a.cls": 2,
        "a.txt.bin": b"3",
    }


def test_reserved_names_of_webdataset_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("__url__,y\n1,2\n")

    with pytest.raises(ConfigError, match="column '__url__': WebDataset reserves names"):
        convert(tmp_path / "a.csv", tmp_path / "a.tar")


def test_two_conversions_do_not_make_one_target(tmp_path: Path) -> None:
    with folder_of(tmp_path).lease(".out.part.lock") as lease:
        assert lease.acquire()
        with pytest.raises(ConfigError, match="another process"):
            convert(Pictures(), tmp_path / "out")

    (
        tmp_path / "out"
    ).mkdir()  # an empty folder is in nobody's way, nor what a killed conversion left
    (tmp_path / ".out.part").mkdir()
    (tmp_path / ".out.part" / "spec.json").write_text("{")
    assert convert(Pictures(), tmp_path / "out").n_verified == MANY
    assert [name for name in os.listdir(tmp_path) if not name.startswith(".~")] == ["out"]


# ------------------------------------------------------------------ sources that are not written


_TEXTS = {
    "a.csv": 'n,x,t,day,flag,void\n1,0.5,"a, ""b""\nc",2020-01-01,true,\n2,,,2020-01-02,,\n3,1e3,é,2020-01-03,false,\n',
    "a.tsv.gz": "n\tt\n1\ta\n2\t\n",
    "a.jsonl": '{"n": 1, "l": [1, 2], "o": {"a": 1}, "s": {"k": 1}}\n{"n": null, "l": [0.5], "o": {"b": "x"}, "s": {"k": 2}}\n',
    "a.ndjson.gz": '{"n": 18}\n{"m": "x"}\n',
}


@pytest.mark.parametrize("name", _TEXTS)
@pytest.mark.parametrize("target", ["out", "out.parquet", "digits.v2"])
def test_text_tables_are_converted_as_they_are_read(tmp_path: Path, name: str, target: str) -> None:
    data = _TEXTS[name].encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    loaded = data_stack.load(tmp_path / name)

    report = convert(tmp_path / name, tmp_path / target)

    back = data_stack.load(tmp_path / target)
    assert report.source_format == ("csv" if "sv" in name else "jsonl")
    assert [plain(sample) for sample in back] == [plain(sample) for sample in loaded]
    assert sorted(os.listdir(tmp_path)) == sorted([name, target])


def plain(value: Any) -> Any:
    """A value with lists instead of arrays."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return plain(value.tolist()) if isinstance(value, (np.ndarray, np.generic)) else value


def test_options_say_how_a_text_table_is_converted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("007;1\n008;2\n")
    options: Any = {
        "delimiter": ";",
        "header": False,
        "names": ["code", "n"],
        "dtypes": {"code": str},
    }

    convert(tmp_path / "a.csv", tmp_path / "out", options=options, columns="code")

    assert list(data_stack.load(tmp_path / "out")) == [{"code": "007"}, {"code": "008"}]
    with pytest.raises(ConfigError, match=r"no option 'delimeter' \(did you mean 'delimiter'"):
        convert(tmp_path / "a.csv", tmp_path / "b", options={"delimeter": ";"})
    with pytest.raises(ConfigError, match="options= applies to files"):
        convert(data_stack.from_numpy(np.zeros(3)), tmp_path / "b", options=options)
    with pytest.raises(ConfigError, match="takes no filters"):
        convert(tmp_path / "a.csv", tmp_path / "b", options={"filters": [("n", ">", 1)]})


def test_a_damaged_text_table_is_not_converted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 100 + '3,"x\n')

    with pytest.raises(DatasetFileCorruptError, match="line 102"):
        convert(tmp_path / "a.csv", tmp_path / "out")

    assert os.listdir(tmp_path) == ["a.csv"]


# ------------------------------------------------------------------ lists of numbers


@pytest.mark.parametrize(
    "values",
    [
        [[97, 98], [99], []],
        [[[1.5, 2.0], [3.0, 4.0]], []],
        [[1, None], [2]],
        [[2**70], [1]],
        [[True], [False, True]],
        [{"ids": [1, 2]}, {"ids": []}],
        [[1]] * 40 + [[None], [2.5]],
    ],
)
@pytest.mark.parametrize("target", ["out", "out.parquet", "out.tar"])
def test_lists_of_numbers_of_samples_are_converted(
    tmp_path: Path, values: list[Any], target: str
) -> None:
    samples = data_stack.from_torch([{"v": value} for value in values])

    convert(samples, tmp_path / target)

    back = data_stack.load(tmp_path / target)
    name = "v.json" if target == "out.tar" else "v"
    assert [plain(sample[name]) for sample in back] == values


def test_lists_with_nan_are_converted(tmp_path: Path) -> None:
    samples = SequenceDatasetIterator([[[0.5, float("nan")], [1.0]]]).as_dict("v")

    convert(samples, tmp_path / "out")

    assert np.isnan(data_stack.load(tmp_path / "out")[0]["v"][1])


def test_json_columns_of_a_table_become_parquet(tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"a": {"x": 1}, "n": 1}\n{"a": {"y": [1, "b"]}, "n": 2}\n')
    samples = data_stack.from_jsonl(lines)

    convert(samples, tmp_path / "lines.parquet")

    converted = data_stack.load(tmp_path / "lines.parquet")
    assert [sample["a"] for sample in converted] == [{"x": 1}, {"y": [1, "b"]}]


def test_the_index_of_a_table_of_pandas_becomes_parquet(tmp_path: Path) -> None:
    import pandas as pd

    table = pd.DataFrame({"v": [1.5, 2.5]}, index=pd.RangeIndex(3, 5, name="i"))

    convert(data_stack.from_pandas(table), tmp_path / "table.parquet")

    converted = data_stack.load(tmp_path / "table.parquet")
    assert converted.read_column("i").tolist() == [3, 4]
