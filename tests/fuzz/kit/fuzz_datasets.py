"""The datasets that are damaged: small ones of every layout, and every type of column."""

from __future__ import annotations

import itertools
import shutil
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_stack.formats import records
from data_stack.formats.records import ColumnType, RecordWriter, ShardedRecordWriter
from data_stack.formats.records.layout import REFS
from data_stack.formats.records.manifest import MANIFEST

Files = Mapping[str, bytes]
Spec = Mapping[str, "str | ColumnType"]
N_SAMPLES = 4


@dataclass(frozen=True)
class FuzzDataset:
    """A whole dataset.

    Attributes:
        name: of its kind.
        files: content by path.
        spec: of its columns.
        truth: its samples.
        weight: how often it is taken, compared with others; what is slow to decode is taken less
            often.
    """

    name: str
    files: Files
    spec: Spec
    truth: Sequence[Mapping[str, Any]]
    weight: int = 10


def pixels(i: int, height: int = 8, width: int = 6, channels: int = 3) -> Any:
    ramp = np.arange(height * width * channels, dtype=np.int64).reshape(height, width, channels)
    return ((ramp * (i + 3)) % 251).astype(np.uint8)


def _video(i: int) -> Any:
    return np.stack([pixels(i + k, 16, 16) for k in range(2)])


def _tone(i: int) -> Any:
    return (np.sin(np.arange(200) / (4 + i)) * 9000).astype(np.int16)


VALUES: Mapping[str, Any] = {
    "array": lambda i: np.arange(i, i + 6, dtype="<f4").reshape(2, 3),
    "bytes": lambda i: bytes(range(i, i + 7 * i)),
    "flac": lambda i: (_tone(i), 8000),
    "i64": lambda i: (-1) ** i * i * 10**8,
    "int": lambda i: (-1) ** i * 300**i,
    "jpg": pixels,
    "json": lambda i: {"a": [i, 1.5, None, True], "ü": "x" * i},
    "mp4": _video,
    "msgpack": lambda i: {"a": [i, 1.5, None, b"\0", 2**40], 7: "x" * 40},
    "npy": lambda i: np.arange(i, i + 4, dtype="<i8").reshape(2, 2),
    "png": pixels,
    "tree": lambda i: {
        "a": np.arange(i, dtype="<i4"),
        "b": [np.ones((2, i + 1), "<f8"), "text", {"c": i}],
    },
    "u64": lambda i: 2**64 - 1 - i,
    "utf8": lambda i: "äöü€" * i,
    "wav": lambda i: (_tone(i), 8000),
    "webm": _video,
    "webp": pixels,
    "zstd(array)": lambda i: np.arange(40, dtype="<i4") * i,
    "zstd(json)": lambda i: ["word"] * (50 + i),
}
"""A value of each type that is built in, by the number of its sample."""


def _value(kind: str, i: int) -> Any:
    if kind.endswith("[]"):
        return [VALUES[kind.removesuffix("[]")](i + k) for k in range((2, 0, 3, 1)[i % 4])]
    return VALUES[kind](i)


def _samples(spec: Spec, n_samples: int) -> list[dict[str, Any]]:
    kinds = {
        name: column.type if isinstance(column, ColumnType) else column
        for name, column in spec.items()
    }
    return [{name: _value(kind, i) for name, kind in kinds.items()} for i in range(n_samples)]


SPECS: Mapping[str, tuple[Spec, int]] = {
    "numbers": ({"a": "i64", "b": "u64", "c": "int"}, 14),
    "texts": ({"raw": "bytes", "text": "utf8", "words": "json"}, 14),
    "packed": ({"leaf": "msgpack", "tree": "tree"}, 14),
    "arrays": (
        {
            "fixed": ColumnType("array", "<f4", (2, 3)),
            "label": ColumnType("i64", "int32"),
            "npy": "npy",
        },
        14,
    ),
    "undeclared": ({"fixed": "array", "npy": ColumnType("npy", "<i8", (2, 2))}, 8),
    "compressed": ({"a": "zstd(array)", "j": "zstd(json)"}, 8),
    "images": ({"j": "jpg", "p": ColumnType("png", "uint8", (8, 6, 3))}, 6),
    "webp": ({"w": "webp"}, 2),
    "sound": ({"f": "flac", "w": "wav"}, 3),
    "mp4": ({"m": "mp4"}, 1),
    "webm": ({"w": "webm"}, 1),
    "sequences": ({"id": "i64", "mats": "array[]", "words": "utf8[]"}, 20),
    "pictures": ({"frames": "jpg[]", "n": "int"}, 3),
}


def content_of(write: Callable[[Path], None]) -> Files:
    """The files that a function writes into a folder."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def write_files(folder: Path, files: Files) -> None:
    """Replace what is in a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def written(
    spec: Spec,
    samples: Sequence[Mapping[str, Any]],
    *,
    shardlen: int | None = None,
    finished: bool = True,
) -> Files:
    """The files of a dataset."""

    def write(folder: Path) -> None:
        writer: Any = (
            RecordWriter(folder, spec)
            if shardlen is None
            else ShardedRecordWriter(folder, spec, shardlen=shardlen)
        )
        for sample in samples:
            writer.append(sample)
        if finished:
            writer.close()
        else:
            writer.abandon()

    return content_of(write)


def read(files: Files) -> list[dict[str, Any]]:
    """The samples of a dataset that is not damaged; other tests show that they are what was
    written.
    """
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder, "data"), files)
        with records.open(Path(folder, "data")) as reader:
            return list(reader)


def bag_records(data: bytes, ends: Sequence[int]) -> list[bytes]:
    """The records that end there."""
    return [data[start:end] for start, end in itertools.pairwise([0, *ends])]


def index_of(records_: Sequence[bytes]) -> bytes:
    """The index of records."""
    return b"".join(struct.pack("<Q", end) for end in itertools.accumulate(map(len, records_)))


def records_in(files: Files, bag: str) -> tuple[list[bytes], str]:
    """The records of a bag that is not damaged, and the file that their index is in."""
    data, index = files[bag], bag.replace(".bag", ".idx")
    if index in files:
        return bag_records(data, struct.unpack(f"<{len(files[index]) // 8}Q", files[index])), index
    if not data:
        return [], bag
    (begin,) = struct.unpack("<Q", data[-8:])
    ends = struct.unpack(f"<{(len(data) - begin) // 8}Q", data[begin:])
    return bag_records(data[:begin], ends[1:] if ends[0] == 0 else ends), bag


def bag_of(records_: Sequence[bytes], *, leading: bool = False) -> bytes:
    """A bag of one file."""
    return b"".join(records_) + (bytes(8) if leading else b"") + index_of(records_)


def _with_leading_zeros(files: Files) -> Files:
    """The same as Granular up to 0.19 wrote it."""
    old = {
        name: bag_of(records_in(files, name)[0], leading=True)
        for name in files
        if name.endswith(".bag")
    }
    return {"spec.json": files["spec.json"], **old}


def _in_one_file(files: Files) -> Files:
    """The same as Granular 0.20 wrote it: no sequences, and references all the same."""
    old = {name: records_in(files, name)[0] for name in files if name.endswith(".bag")}
    n_samples = len(next(iter(old.values())))
    references = [bytes((0x90 | len(old), *([i] * len(old)))) for i in range(n_samples)]
    bags = {name: bag_of(each) for name, each in old.items()}
    return {"spec.json": files["spec.json"], f"{REFS}.bag": bag_of(references), **bags}


def fuzz_datasets() -> list[FuzzDataset]:
    """All of them; it takes about a second."""
    datasets = []
    for name, (spec, weight) in SPECS.items():
        files = written(spec, _samples(spec, N_SAMPLES))
        datasets.append(FuzzDataset(name, files, spec, read(files), weight))
    numbers, sequences = SPECS["numbers"][0], SPECS["sequences"][0]
    large: Spec = {"blob": "bytes", "id": "i64", "x": ColumnType("array", "<f4", (9000,))}
    blobs = [
        {"blob": bytes(40_000 + 30_000 * i), "id": i, "x": np.arange(9000, dtype="<f4") + i}
        for i in range(N_SAMPLES)
    ]
    others: list[tuple[str, Files, Spec, int]] = [
        ("blocks", written(large, blobs), large, 4),
        ("empty", written(numbers, []), numbers, 2),
        ("empty sequences", written(sequences, []), sequences, 2),
        ("shards", written(numbers, _samples(numbers, 5), shardlen=2), numbers, 6),
        (
            "shards of sequences",
            written(sequences, _samples(sequences, 5), shardlen=2),
            sequences,
            6,
        ),
        (
            "leading zeros",
            _with_leading_zeros(written(sequences, _samples(sequences, N_SAMPLES))),
            sequences,
            14,
        ),
        ("one file", _in_one_file(written(numbers, _samples(numbers, N_SAMPLES))), numbers, 6),
        ("unfinished", written(numbers, _samples(numbers, N_SAMPLES), finished=False), numbers, 4),
        (
            "of granular",
            _without_manifest(written(SPECS["arrays"][0], _samples(SPECS["arrays"][0], 3))),
            SPECS["arrays"][0],
            10,
        ),
    ]
    datasets += [
        FuzzDataset(name, files, spec, read(files), weight) for name, files, spec, weight in others
    ]
    return datasets


def _without_manifest(files: Files) -> Files:
    return {name: data for name, data in files.items() if not name.endswith(MANIFEST)}
